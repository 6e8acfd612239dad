// node oidc-provider's device flow and introspection, everything in memory. `POST /approve` stands for the pages on
// which a person confirms: it sets what they set, and leaves their cost out.
import { Provider } from "oidc-provider";

const port = Number(process.argv[2]);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: "bench",
      client_secret: "secret",
      token_endpoint_auth_method: "client_secret_post",
      grant_types: ["urn:ietf:params:oauth:grant-type:device_code"],
      redirect_uris: [],
      response_types: [],
    },
  ],
  features: {
    deviceFlow: { enabled: true },
    introspection: { enabled: true, allowedPolicy: async () => true },
    devInteractions: { enabled: false },
  },
  findAccount: async (ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  cookies: { keys: ["bench"] },
});

async function approve(userCode) {
  const code = await provider.DeviceCode.findByUserCode(userCode);
  const grant = new provider.Grant({ accountId: "user", clientId: "bench" });
  grant.addOIDCScope("openid");
  Object.assign(code, { accountId: "user", grantId: await grant.save(), scope: "openid", authTime: Math.floor(Date.now() / 1000) });
  await code.save();
}

provider.use(async (ctx, next) => {
  if (ctx.path !== "/approve") return next();
  await approve(ctx.query.user_code);
  ctx.body = { approved: true };
});
provider.listen(port, "127.0.0.1", 4096);

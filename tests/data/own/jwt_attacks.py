# ruff: noqa
# mypy: ignore-errors
# fmt: off
"""Builds hostile variants of one valid compact JWT. Own code, no third-party text.
usage: python jwt_attacks.py TOKEN [PUBLIC_KEY.pem ...]  -> JSON list of {name, authorization}
Every variant must answer 401 with the same body as a random token. (Names starting with ok- must be accepted.)"""
import base64,hashlib,hmac,json,sys,time
def e(b): return base64.urlsafe_b64encode(b).rstrip(b'=').decode()
def d(s): return base64.urlsafe_b64decode(s+'='*(-len(s)%4))
def J(o): return json.dumps(o,separators=(',',':')).encode()
def build(tok,pems=()):
    h,p,s=tok.split('.'); H=json.loads(d(h)); P=json.loads(d(p)); out=[]
    A=lambda n,t,scheme='Bearer ': out.append({'name':n,'authorization':scheme+t})
    far=int(time.time())+86400*365
    esc=dict(P,permissions=['MASTER'],exp=far)
    for a in ('none','None','NONE','nOnE',' none','none ',''):
        A(f'alg={a!r} no sig',e(J(dict(H,alg=a)))+'.'+e(J(esc))+'.'); A(f'alg={a!r} old sig',e(J(dict(H,alg=a)))+'.'+p+'.'+s)
    for a in (None,0,True,[],['HS256'],{}): A(f'alg type {a!r}',e(J(dict(H,alg=a)))+'.'+p+'.'+s)
    H2=dict(H);H2.pop('alg',None);A('alg missing',e(J(H2))+'.'+p+'.'+s)
    A('empty sig',h+'.'+p+'.'); A('two parts',h+'.'+p); A('four parts',tok+'.x'); A('five parts (JWE)',tok+'..'); A('only dots','..'); A('payload empty',h+'..'+s)
    A('payload swapped',h+'.'+e(J(esc))+'.'+s); A('exp extended',h+'.'+e(J(dict(P,exp=far)))+'.'+s)
    A('sig zero',h+'.'+p+'.'+e(b'\0'*len(d(s)))); A('sig truncated',h+'.'+p+'.'+e(d(s)[:-1])); A('sig 1 byte',h+'.'+p+'.'+e(d(s)[:1])); A('sig long',h+'.'+p+'.'+e(d(s)+b'\0'))
    A('sig std-base64 chars',h+'.'+p+'.'+s.replace('-','+').replace('_','/') if ('-' in s or '_' in s) else h+'.'+p+'.+'+s[1:])
    A('sig pad =',tok+'='); A('sig pad ==',tok+'=='); A('space in sig',h+'.'+p+'.'+s[:5]+' '+s[5:]); A('newline',h+'.'+p+'.'+s[:5]+'%0a'+s[5:])
    al='ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
    if len(d(s))%3: i=al.index(s[-1]); A('non-canonical last char',tok[:-1]+al[i^1])
    def hs(n,key,hd,pl=esc,alg='HS256',f=hashlib.sha256): m=e(J(dict(hd,alg=alg)))+'.'+e(J(pl)); A(n,m+'.'+e(hmac.new(key,m.encode(),f).digest()))
    for n,k in (('empty key',b''),('NUL key',b'\0'),('32 NUL',b'\0'*32),('"secret"',b'secret'),('"changeme"',b'changeme'),('"null"',b'null'),('"undefined"',b'undefined'),('"engine"',b'engine'),('"your-256-bit-secret"',b'your-256-bit-secret')): hs('HS256 '+n,k,H)
    for pem in pems:
        b=open(pem,'rb').read()
        for n,k in (('pem',b),('pem stripped',b.strip()),('pem no nl',b.replace(b'\n',b'')),('der',base64.b64decode(b''.join(l for l in b.splitlines() if b'-' not in l)))):
            for alg,f in (('HS256',hashlib.sha256),('HS384',hashlib.sha384),('HS512',hashlib.sha512)): hs(f'{alg} with public key {n}',k,H,alg=alg,f=f)
    for kid in ('../../../../dev/null','/dev/null','',"' UNION SELECT '' -- ",'|id','\0','a'*10000,0,None,[],{}): hs(f'kid {str(kid)[:24]!r} empty key',b'',dict(H,kid=kid)); 
    hs('embedded jwk oct',b'k'*32,dict(H,jwk={'kty':'oct','k':e(b'k'*32)})); hs('jku',b'',dict(H,jku='http://127.0.0.1:9/jwks.json')); hs('x5u',b'',dict(H,x5u='http://127.0.0.1:9/c.pem')); hs('x5c',b'',dict(H,x5c=['AA==']))
    A('crit unknown',e(J(dict(H,crit=['zzz'],zzz=1)))+'.'+p+'.'+s); A('b64 false',e(J(dict(H,b64=False,crit=['b64'])))+'.'+p+'.'+s)
    A('zip DEF',e(J(dict(H,zip='DEF')))+'.'+p+'.'+s); A('header dup alg',e(b'{"alg":"none","alg":"%s"}'%str(H.get('alg')).encode())+'.'+p+'.'+s)
    A('header not object',e(b'[]')+'.'+p+'.'+s); A('header deep',e(b'['*20000+b']'*20000)+'.'+p+'.'+s); A('payload array',h+'.'+e(b'[1]')+'.'+s); A('payload NaN',h+'.'+e(b'{"exp":NaN}')+'.'+s)
    A('JSON serialization',json.dumps({'payload':p,'protected':h,'signature':s})); A('1 MiB token','A'*1048576)
    A('no scheme',tok,''); A('Basic',tok,'Basic '); A('two spaces bearer list',tok+', Bearer '+tok); A('tab',tok,'Bearer\t'); A('empty','',"Bearer "); A('null byte',tok+'%00'); A('token twice',tok+tok)
    out.append({'name':'ok-lowercase scheme (RFC 9110 11.1: case-insensitive)','authorization':'bearer '+tok})
    return out
if __name__=='__main__': print(json.dumps(build(sys.argv[1],sys.argv[2:]),indent=0))

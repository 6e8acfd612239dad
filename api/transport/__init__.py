"""The wire: our subclasses of Hypercorn 0.18's trio classes, handed in by `api.server`. They end what stock leaves."""

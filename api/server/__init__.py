"""Sockets, connections, deadlines, HTTP/1.1 and HTTP/2: our subclasses of Hypercorn 0.18's trio classes, and
the parser of plain requests in front of them. The only package that imports Hypercorn; it knows no endpoint.
"""

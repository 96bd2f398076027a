"""omniORBpy as a peer of GIOP 1.1, whose numbers it aligns by their place in the fragment:

    peer.py serve                   prints "ready" and a reference, and serves until its standard input ends
    peer.py call REFERENCE          checks the answers
"""

import sys
import threading

from omniORB import CORBA, PortableServer

import Peers
import Peers__POA

VERSION = ["-ORBmaxGIOPVersion", "1.1"]


class Servant(Peers__POA.Peer):
    def echo_doubles(self, a, b):
        return a, a, b

    def echo_points(self, a, b):
        return a, a, b


def serve():
    orb = CORBA.ORB_init(sys.argv[:1] + VERSION + ["-ORBendPoint", "giop:tcp:127.0.0.1:0"], CORBA.ORB_ID)
    adapter = orb.resolve_initial_references("RootPOA")
    servant = Servant()
    reference = orb.object_to_string(servant._this())
    adapter._get_the_POAManager().activate()
    print("ready", reference, flush=True)
    sys.stdin.read()
    orb.shutdown(True)


def call(reference):
    orb = CORBA.ORB_init(sys.argv[:1] + VERSION, CORBA.ORB_ID)
    peer = orb.string_to_object(reference)._narrow(Peers.Peer)
    checks = failed = 0

    def check(name, found, expected):
        nonlocal checks, failed
        checks += 1
        if found != expected:
            failed += 1
            print("FAILED", name)

    doubles = [1.1 * i + 0.3 for i in range(5000)]
    points = [Peers.Point(x, i) for i, x in enumerate(doubles)]
    plain = lambda lists: [[(point.x, point.y) for point in points] for points in lists]
    # Fragments are of 8,192 octets.
    for first, second in [(3, 2), (1000, 1), (1100, 3), (1020, 1100), (2500, 2500), (5000, 1)]:
        a, b = doubles[:first], doubles[:second]
        try:
            check("doubles %d %d" % (first, second), list(peer.echo_doubles(a, b)), [a, a, b])
        except CORBA.SystemException as exception:
            check("doubles %d %d: %s" % (first, second, exception), False, True)
        a, b = points[:first], points[:second]
        try:
            check("points %d %d" % (first, second), plain(peer.echo_points(a, b)), plain([a, a, b]))
        except CORBA.SystemException as exception:
            check("points %d %d: %s" % (first, second, exception), False, True)
    print("%d checks, %d failed" % (checks, failed))
    sys.exit(failed > 0)


if sys.argv[1:] == ["serve"]:
    serve()
elif len(sys.argv) == 3 and sys.argv[1] == "call":
    call(sys.argv[2])
else:
    sys.exit(__doc__)

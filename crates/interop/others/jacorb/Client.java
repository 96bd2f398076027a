import Peers.*;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.omg.CORBA.Any;
import org.omg.CORBA.BooleanHolder;
import org.omg.CORBA.CompletionStatus;
import org.omg.CORBA.IntHolder;
import org.omg.CORBA.ORB;
import org.omg.CORBA.SystemException;
import org.omg.CORBA.UserException;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;

/**
 * JacORB's client of peers.idl: {@code Client REFERENCE [--narrow] [--no-callbacks] [--codes] [--ordered] [--bidir] [--stop]
 * [--skip NAME]...}, as omniORB's. Prints a line a check, and ends with status 1 if one failed.
 */
public final class Client {
    private static final Set<String> WIDE =
        Set.of("wchar", "wstring", "widename", "mixed", "nested", "onlong", "onlonglong", "widechars", "widestrings");
    private static final Set<String> skipped = new HashSet<>();
    private static int checks, failures;

    private static void check(String name, Callable<Boolean> run) {
        if (skipped.contains(name)) {
            System.out.println("skipped " + name);
            return;
        }
        checks++;
        String why = "a wrong answer";
        try {
            if (run.call()) {
                System.out.println("ok " + name);
                return;
            }
        } catch (InvocationTargetException e) {
            why = String.valueOf(e.getCause());
        } catch (Exception e) {
            why = e.toString();
        }
        failures++;
        System.out.println("FAILED " + name + ": " + why);
    }

    private interface Fits<E> { boolean fits(E raised) throws Exception; }
    private interface Run { void run() throws Exception; }

    private static <E extends Exception> void raises(String name, Class<E> what, Run run, Fits<E> fits) {
        check(name, () -> {
            try {
                run.run();
            } catch (Exception e) {
                if (what.isInstance(e)) return fits.fits(what.cast(e));
                throw e;
            }
            return false;
        });
    }

    private static final class Listener extends CallbackPOA {
        private final Set<Integer> told = new HashSet<>();
        public String call(String what) { return "[" + what + "]"; }
        public int descend(org.omg.CORBA.Object peer, int depth) {
            return PeerHelper.narrow(peer).descend(CallbackHelper.narrow(_this_object()), depth - 1) + 1;
        }
        public void fail(String why) throws Detailed { throw Server.detailed(why, 17); }
        public synchronized void tell(int number) {
            told.add(number);
            notifyAll();
        }
        synchronized boolean heard(int count) throws InterruptedException {
            long until = System.currentTimeMillis() + 20000;
            while (told.size() < count && System.currentTimeMillis() < until) wait(1000);
            return told.size() >= count;
        }
    }

    /** Calls an echo through reflection; what is not the answer expected is false. */
    private static boolean echo(Peer peer, String name, Object a, Object b) throws Exception {
        for (Method method : PeerOperations.class.getMethods()) {
            if (!method.getName().equals("echo_" + name)) continue;
            Class<?>[] types = method.getParameterTypes();
            Object inout = types[1].getConstructor().newInstance(), out = types[2].getConstructor().newInstance();
            types[1].getField("value").set(inout, b);
            Object result = method.invoke(peer, a, inout, out);
            return Samples.same(result, a) && Samples.same(types[1].getField("value").get(inout), a)
                && Samples.same(types[2].getField("value").get(out), b);
        }
        throw new NoSuchMethodException(name);
    }

    private static void echoes(Peer peer, Map<String, Object[]> samples, boolean narrow) {
        for (Map.Entry<String, Object[]> sample : samples.entrySet()) {
            String name = sample.getKey();
            if (narrow && WIDE.contains(name)) continue;
            Object first = sample.getValue()[0], second = sample.getValue()[1];
            check("echo_" + name, () -> echo(peer, name, first, second) && echo(peer, name, second, first));
        }
        check("extremes", () -> {
            boolean all = true;
            for (double d : new double[] {-0.0, Double.MIN_VALUE, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, Double.NaN})
                all &= echo(peer, "double", d, 0.0) && echo(peer, "float", (float) d, 0f);
            all &= echo(peer, "string", "v".repeat(100000), "a\"\\\u0001\u007f");
            all &= echo(peer, "long", 0x01020304, 0) && echo(peer, "longlong", 0x0102030405060708L, 0L);
            return all;
        });
        if (!narrow)
            check("wide text has the code points it was given", () -> {
                int[] points = {0x41, 0x3a9, 0x65e5};
                String text = peer.wide_text_of(points);
                return text.equals("A\u03a9\u65e5") && Samples.same(peer.wide_points_of(text), points);
            });
    }

    private static void codes(Peer peer) {
        check("text has the code points it was given", () -> {
            int[] points = {'A', 0xe9, 0xff};
            String text = peer.text_of(points);
            return text.equals("A\u00e9\u00ff") && Samples.same(peer.points_of(text), points);
        });
    }

    private static void anys(ORB orb, Peer peer, Map<String, Object[]> samples, boolean narrow) {
        for (String name : samples.keySet()) {
            if (narrow && WIDE.contains(name)) continue;
            check("any of " + name, () -> {
                Any theirs = peer.sample(name);
                org.omg.CORBA.AnyHolder b = new org.omg.CORBA.AnyHolder(Samples.any(orb, 42)), c = new org.omg.CORBA.AnyHolder();
                Any back = peer.echo_any(theirs, b, c);
                return Samples.same(Samples.extract(name, theirs), samples.get(name)[0]) && peer.is_sample(name, back)
                    && peer.is_sample(name, b.value) && c.value.extract_long() == 42;
            });
            check("any of our " + name, () -> peer.is_sample(name, Samples.insert(orb, name, samples.get(name)[0])));
        }
        check("an any of another type is not the sample", () -> {
            Any any = orb.create_any();
            any.insert_double(1);
            return !peer.is_sample("long", any);
        });
    }

    private static void exceptions(ORB orb, Peer peer) {
        raises("raise_plain", Plain.class, peer::raise_plain, e -> true);
        raises("raise_detailed", Detailed.class, () -> peer.raise_detailed("because", -7), e -> e.why.equals("because")
            && e.code == -7 && Samples.same(e.place, Samples.point(false)) && e.notes.length == 3 && e.notes[2].equals("a longer one"));
        raises("raise_any", WithAny.class, () -> peer.raise_any(Samples.any(orb, "an any")),
            e -> e.what.extract_string().equals("an any"));
        String[] standard = {"UNKNOWN", "BAD_PARAM", "NO_MEMORY", "IMP_LIMIT", "COMM_FAILURE", "INV_OBJREF", "NO_PERMISSION",
            "INTERNAL", "MARSHAL", "INITIALIZE", "NO_IMPLEMENT", "BAD_TYPECODE", "BAD_OPERATION", "NO_RESOURCES", "NO_RESPONSE",
            "PERSIST_STORE", "BAD_INV_ORDER", "TRANSIENT", "FREE_MEM", "INV_IDENT", "INV_FLAG", "INTF_REPOS", "BAD_CONTEXT",
            "OBJ_ADAPTER", "DATA_CONVERSION", "OBJECT_NOT_EXIST", "TRANSACTION_REQUIRED", "TRANSACTION_ROLLEDBACK",
            "INVALID_TRANSACTION", "INV_POLICY", "CODESET_INCOMPATIBLE", "REBIND", "TIMEOUT", "TRANSACTION_UNAVAILABLE",
            "TRANSACTION_MODE", "BAD_QOS"};
        for (String name : standard)
            raises("raise_system " + name, SystemException.class, () -> peer.raise_system(name, 0x12345678, 2),
                e -> e.getClass().getSimpleName().equals(name) && e.minor == 0x12345678
                    && e.completed == CompletionStatus.COMPLETED_MAYBE);
        raises("raise_undeclared", org.omg.CORBA.UNKNOWN.class, peer::raise_undeclared, e -> true);
        raises("an object that does not exist", org.omg.CORBA.OBJECT_NOT_EXIST.class, () -> peer.missing().nothing(), e -> true);
        check("_non_existent of it", () -> peer.missing()._non_existent());
        raises("an operation that does not exist", org.omg.CORBA.BAD_OPERATION.class, () -> {
            org.omg.CORBA.Request request = peer._request("no_such_operation");
            request.set_return_type(orb.get_primitive_tc(org.omg.CORBA.TCKind.tk_void));
            request.invoke();
            if (request.env().exception() != null) throw request.env().exception();
        }, e -> true);
    }

    private static void objects(Peer peer, Callback callback) {
        check("echo_object", () -> {
            org.omg.CORBA.ObjectHolder b = new org.omg.CORBA.ObjectHolder(), c = new org.omg.CORBA.ObjectHolder();
            return peer.echo_object(peer, b, c)._is_equivalent(peer) && b.value._is_equivalent(peer) && c.value == null;
        });
        check("echo_callback", () -> {
            CallbackHolder b = new CallbackHolder(callback), c = new CallbackHolder();
            return peer.echo_callback(null, b, c) == null && b.value == null && c.value._is_equivalent(callback);
        });
        check("echo_callbacks", () -> {
            CallbacksHolder b = new CallbacksHolder(new Callback[0]), c = new CallbacksHolder();
            Callback[] r = peer.echo_callbacks(new Callback[] {callback, null}, b, c);
            return r.length == 2 && r[0]._is_equivalent(callback) && r[1] == null && b.value.length == 2 && c.value.length == 0;
        });
        check("_is_a", () -> peer._is_a("IDL:hyoshi/Peers/Base:1.0") && peer._is_a(PeerHelper.id())
            && !peer._is_a(CallbackHelper.id()));
        check("_non_existent", () -> !peer._non_existent());
        check("nil", () -> peer.nil() == null);
        check("the diamond", () -> {
            Diamond diamond = peer.as_diamond();
            diamond.number(-5);
            diamond.place(Samples.point(false));
            diamond.names(new String[] {"x", ""});
            return peer.number() == -5 && Samples.same(diamond.place(), Samples.point(false))
                && Samples.same(diamond.names(), new String[] {"x", ""}) && diamond.left_says().equals("left")
                && diamond.right_says().equals("right") && diamond.bottom_says().equals("bottom");
        });
        check("a base narrows to what it is", () -> {
            Base base = peer.as_base();
            boolean refused = false;
            try {
                CallbackHelper.narrow(base);
            } catch (org.omg.CORBA.BAD_PARAM e) {
                refused = true;
            }
            return refused && PeerHelper.narrow(base) != null && !base.kind().isEmpty() && base.base_says("x").equals("base x");
        });
        check("forwarded", () -> {
            if (!echo(peer.forwarded(), "long", 1, 2)) return false;
            byte[] big = new byte[300000];
            big[299999] = 7;
            return echo(peer.forwarded(), "octets", big, new byte[0]);
        });
    }

    private static void large(Peer peer) {
        for (int size : new int[] {1000, 8192, 65536, 1048576, 1048577})
            check("octets, " + size, () -> {
                byte[] octets = new byte[size];
                for (int i = 0; i < size; i++) octets[i] = (byte) (i * 7 + i / 256);
                return echo(peer, "octets", octets, new byte[0]);
            });
    }

    private static void oneways(Peer peer, boolean ordered) {
        check("a burst of oneways", () -> {
            BooleanHolder inOrder = new BooleanHolder();
            peer.noted(inOrder);
            int burst = 1000;
            for (int i = 1; i <= burst; i++) peer.note(i, new byte[i % 100]);
            int count = 0;
            boolean rising = true;
            for (int wait = 0; wait < 500 && count < burst; wait++) {
                count += peer.noted(inOrder);
                rising &= inOrder.value;
                if (count < burst) Thread.sleep(10);
            }
            if (count != burst) System.out.println(count + " of " + burst + " notes came");
            return count == burst && (rising || !ordered);
        });
    }

    private static void concurrency(Peer peer) {
        check("eight threads", () -> {
            java.util.concurrent.atomic.AtomicInteger wrong = new java.util.concurrent.atomic.AtomicInteger();
            Thread[] threads = new Thread[8];
            for (int t = 0; t < threads.length; t++) {
                int base = t * 1000;
                threads[t] = new Thread(() -> {
                    try {
                        for (int i = 0; i < 200; i++) {
                            IntHolder b = new IntHolder(i), c = new IntHolder();
                            if (peer.echo_long(base + i, b, c) != base + i || c.value != i) wrong.incrementAndGet();
                        }
                    } catch (RuntimeException e) {
                        System.out.println("a thread got " + e);
                        wrong.incrementAndGet();
                    }
                });
                threads[t].start();
            }
            for (Thread thread : threads) thread.join();
            return wrong.get() == 0;
        });
    }

    private static void callbacks(Peer peer, Listener listener, Callback callback) {
        check("call_back", () -> peer.call_back(callback, "hi").equals("[hi]"));
        raises("call_back_failing", Detailed.class, () -> peer.call_back_failing(callback, "asked"),
            e -> e.why.equals("asked") && e.code == 17);
        check("descend", () -> peer.descend(callback, 3) == 6);
        check("tell", () -> {
            peer.tell(callback, 20);
            return listener.heard(20);
        });
    }

    public static void main(String[] arguments) throws Exception {
        ORB orb = ORB.init(arguments, new java.util.Properties());
        String reference = null;
        boolean narrow = false, withCallbacks = true, withCodes = false, bidirectional = false, ordered = false, stop = false;
        for (int i = 0; i < arguments.length; i++) {
            switch (arguments[i]) {
                case "--narrow": narrow = true; break;
                case "--no-callbacks": withCallbacks = false; break;
                case "--codes": withCodes = true; break;
                case "--bidir": bidirectional = true; break;
                case "--ordered": ordered = true; break;
                case "--stop": stop = true; break;
                case "--skip": skipped.add(arguments[++i]); break;
                default: if (!arguments[i].startsWith("-ORB")) reference = arguments[i]; else i++;
            }
        }
        try {
            Peer peer = PeerHelper.narrow(orb.string_to_object(reference));
            POA root = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
            root.the_POAManager().activate();
            POA poa = root.create_POA("callbacks", root.the_POAManager(), new org.omg.CORBA.Policy[0]);
            if (bidirectional) {
                Any any = orb.create_any();
                org.omg.BiDirPolicy.BidirectionalPolicyValueHelper.insert(any, org.omg.BiDirPolicy.BOTH.value);
                poa = root.create_POA("bidirectional", root.the_POAManager(), new org.omg.CORBA.Policy[] {
                    orb.create_policy(org.omg.BiDirPolicy.BIDIRECTIONAL_POLICY_TYPE.value, any),
                    root.create_id_assignment_policy(org.omg.PortableServer.IdAssignmentPolicyValue.SYSTEM_ID)});
            }
            Listener listener = new Listener();
            Callback callback = CallbackHelper.narrow(poa.id_to_reference(poa.activate_object(listener)));
            Map<String, Object[]> samples = Samples.all(orb);
            echoes(peer, samples, narrow);
            if (withCodes) codes(peer);
            anys(orb, peer, samples, narrow);
            objects(peer, callback);
            exceptions(orb, peer);
            large(peer);
            oneways(peer, ordered);
            concurrency(peer);
            if (withCallbacks) callbacks(peer, listener, callback);
            if (stop) peer.shutdown();
        } catch (Exception e) {
            e.printStackTrace(System.out);
            System.out.println("FAILED: " + e);
            failures++;
        }
        System.out.println(checks + " checks, " + failures + " failed");
        System.out.flush();
        Runtime.getRuntime().halt(failures == 0 ? 0 : 1);
    }
}

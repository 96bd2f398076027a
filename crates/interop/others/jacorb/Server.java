import Peers.*;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Map;
import org.omg.CORBA.Any;
import org.omg.CORBA.BooleanHolder;
import org.omg.CORBA.CompletionStatus;
import org.omg.CORBA.ORB;
import org.omg.CORBA.Policy;
import org.omg.PortableServer.IdAssignmentPolicyValue;
import org.omg.PortableServer.LifespanPolicyValue;
import org.omg.PortableServer.POA;
import org.omg.PortableServer.POAHelper;

/**
 * JacORB's server of peers.idl: {@code Server [--name NAME] [--ior FILE] [--bidir]}. Prints "ready IOR:..." when it serves
 * and ends when its standard input does, so that it cannot outlive a test.
 */
public final class Server {
    private final ORB orb;
    private final Map<String, Object[]> samples;
    private POA forwarding, deserted;
    private Peer myself;
    private int number;
    private Point place = new Point(0, 0);
    private String[] names = new String[0];
    private int count, last;
    private boolean rising = true;

    private Server(ORB orb) {
        this.orb = orb;
        samples = Samples.all(orb);
    }

    /** An echo whatever its type, else the method of this class with the operation's name. */
    private Object invoke(Method operation, Object[] arguments) throws Throwable {
        String name = operation.getName();
        if (!name.startsWith("note")) System.out.println("served " + name);
        if (name.startsWith("echo_")) {
            arguments[2].getClass().getField("value").set(arguments[2], arguments[1].getClass().getField("value").get(arguments[1]));
            arguments[1].getClass().getField("value").set(arguments[1], arguments[0]);
            return arguments[0];
        }
        try {
            return Server.class.getDeclaredMethod(name, operation.getParameterTypes()).invoke(this, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    String kind() { return "JacORB"; }
    String base_says(String what) { return "base " + what; }
    int number() { return number; }
    void number(int to) { number = to; }
    String left_says() { return "left"; }
    Point place() { return place; }
    void place(Point to) { place = to; }
    String right_says() { return "right"; }
    String[] names() { return names; }
    void names(String[] to) { names = to; }
    String bottom_says() { return "bottom"; }

    int[] points_of(String text) { return text.codePoints().toArray(); }
    int[] wide_points_of(String text) { return text.codePoints().toArray(); }
    String text_of(int[] points) { return new String(points, 0, points.length); }
    String wide_text_of(int[] points) { return new String(points, 0, points.length); }

    Any sample(String name) throws Exception {
        if (!samples.containsKey(name)) throw new org.omg.CORBA.BAD_PARAM(name);
        return Samples.insert(orb, name, samples.get(name)[0]);
    }

    boolean is_sample(String name, Any value) throws Exception {
        if (!samples.containsKey(name)) throw new org.omg.CORBA.BAD_PARAM(name);
        try {
            return Samples.same(Samples.extract(name, value), samples.get(name)[0]);
        } catch (org.omg.CORBA.BAD_OPERATION | org.omg.CORBA.MARSHAL e) {
            return false;
        } catch (InvocationTargetException e) {
            System.out.println("no " + name + " in an any: " + e.getCause());
            return false;
        }
    }

    void nothing() {}
    void raise_plain() throws Plain { throw new Plain(); }
    void raise_detailed(String why, int code) throws Detailed { throw detailed(why, code); }
    void raise_any(Any what) throws WithAny { throw new WithAny(what); }

    static Detailed detailed(String why, int code) {
        return new Detailed(why, code, Samples.point(false), new String[] {"", "a", "a longer one"});
    }

    void raise_system(String name, int minor, int completed) throws Exception {
        org.omg.CORBA.SystemException raised;
        try {
            raised = (org.omg.CORBA.SystemException) Class.forName("org.omg.CORBA." + name)
                .getConstructor(int.class, CompletionStatus.class).newInstance(minor, CompletionStatus.from_int(completed));
        } catch (ClassNotFoundException e) {
            raised = new org.omg.CORBA.BAD_PARAM(0, CompletionStatus.COMPLETED_NO);
        }
        throw raised;
    }

    void raise_undeclared() { throw new IllegalStateException("asked for"); }
    void sleep_ms(int duration) throws InterruptedException { Thread.sleep(duration); }

    synchronized void note(int number, byte[] raw) {
        if (number <= last || raw.length != number % 100) rising = false;
        last = number;
        count++;
    }

    synchronized int noted(BooleanHolder inOrder) {
        int so_far = count;
        inOrder.value = rising;
        count = last = 0;
        rising = true;
        return so_far;
    }

    String call_back(Callback who, String what) { return who.call(what); }
    void call_back_failing(Callback who, String why) throws Detailed { who.fail(why); }
    int descend(Callback who, int depth) { return depth == 0 ? 0 : who.descend(myself, depth) + 1; }
    void tell(Callback who, int count) { for (int i = 1; i <= count; i++) who.tell(i); }

    Peer forwarded() throws Exception { return reference(forwarding, "forwarded"); }
    Peer missing() throws Exception { return reference(deserted, "missing"); }
    Peer nil() { return null; }
    Diamond as_diamond() { return myself; }
    Base as_base() { return myself; }
    void shutdown() { new Thread(() -> orb.shutdown(true)).start(); }

    private Peer reference(POA poa, String name) throws Exception {
        return PeerHelper.unchecked_narrow(poa.create_reference_with_id(name.getBytes(), PeerHelper.id()));
    }

    /**
     * Answers each request for the object "forwarded" with LOCATION_FORWARD to the real one. An interceptor, for JacORB 3.9
     * loses the reply when a servant locator raises ForwardRequest.
     */
    public static final class Forwarder extends org.omg.CORBA.LocalObject
            implements org.omg.PortableInterceptor.ORBInitializer, org.omg.PortableInterceptor.ServerRequestInterceptor {
        static volatile Peer to;

        public void pre_init(org.omg.PortableInterceptor.ORBInitInfo info) {}
        public void post_init(org.omg.PortableInterceptor.ORBInitInfo info) {
            try {
                info.add_server_request_interceptor(this);
            } catch (org.omg.PortableInterceptor.ORBInitInfoPackage.DuplicateName e) {
                throw new IllegalStateException(e);
            }
        }
        public String name() { return "forwarder"; }
        public void destroy() {}
        public void receive_request_service_contexts(org.omg.PortableInterceptor.ServerRequestInfo info) {}
        public void receive_request(org.omg.PortableInterceptor.ServerRequestInfo info)
                throws org.omg.PortableInterceptor.ForwardRequest {
            if (!new String(info.object_id()).equals("forwarded")) return;
            System.out.println("forward " + info.operation());
            throw new org.omg.PortableInterceptor.ForwardRequest(to);
        }
        public void send_reply(org.omg.PortableInterceptor.ServerRequestInfo info) {}
        public void send_exception(org.omg.PortableInterceptor.ServerRequestInfo info) {}
        public void send_other(org.omg.PortableInterceptor.ServerRequestInfo info) {}
    }

    private static POA adapter(POA parent, String name, Policy... more) throws Exception {
        java.util.List<Policy> policies = new java.util.ArrayList<>(java.util.Arrays.asList(more));
        policies.add(parent.create_lifespan_policy(LifespanPolicyValue.PERSISTENT));
        policies.add(parent.create_id_assignment_policy(IdAssignmentPolicyValue.USER_ID));
        return parent.create_POA(name, parent.the_POAManager(), policies.toArray(new Policy[0]));
    }

    public static void main(String[] arguments) throws Exception {
        java.util.Properties properties = new java.util.Properties();
        // Persistent adapters need a name for their server.
        properties.put("jacorb.implname", "peers");
        // By default the hundred-and-first oneway waiting is refused.
        properties.put("jacorb.poa.queue_max", "10000");
        properties.put("org.omg.PortableInterceptor.ORBInitializerClass." + Forwarder.class.getName(), "");
        ORB orb = ORB.init(arguments, properties);
        String name = null, file = null;
        boolean bidirectional = false;
        for (int i = 0; i < arguments.length; i++) {
            if (arguments[i].equals("--name")) name = arguments[++i];
            else if (arguments[i].equals("--ior")) file = arguments[++i];
            else if (arguments[i].equals("--bidir")) bidirectional = true;
        }
        POA root = POAHelper.narrow(orb.resolve_initial_references("RootPOA"));
        Policy[] both = {};
        if (bidirectional) {
            Any any = orb.create_any();
            org.omg.BiDirPolicy.BidirectionalPolicyValueHelper.insert(any, org.omg.BiDirPolicy.BOTH.value);
            both = new Policy[] {orb.create_policy(org.omg.BiDirPolicy.BIDIRECTIONAL_POLICY_TYPE.value, any)};
        }
        Server server = new Server(orb);
        POA poa = adapter(root, "peers", both);
        server.forwarding = adapter(root, "forwarding");
        server.deserted = adapter(root, "deserted");
        PeerOperations operations = (PeerOperations) Proxy.newProxyInstance(Server.class.getClassLoader(),
            new Class<?>[] {PeerOperations.class}, (proxy, method, given) -> server.invoke(method, given));
        poa.activate_object_with_id("Peer".getBytes(), new PeerPOATie(operations));
        server.myself = PeerHelper.narrow(poa.id_to_reference("Peer".getBytes()));
        Forwarder.to = server.myself;
        server.forwarding.activate_object_with_id("forwarded".getBytes(), new PeerPOATie(operations));
        root.the_POAManager().activate();

        if (name != null) {
            org.omg.CosNaming.NamingContext naming =
                org.omg.CosNaming.NamingContextHelper.narrow(orb.resolve_initial_references("NameService"));
            naming.rebind(new org.omg.CosNaming.NameComponent[] {new org.omg.CosNaming.NameComponent(name, "")}, server.myself);
        }
        String ior = orb.object_to_string(server.myself);
        if (file != null) java.nio.file.Files.writeString(java.nio.file.Path.of(file), ior + "\n");
        System.out.println("ready " + ior);
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException e) {
                // Closed is closed.
            }
            Runtime.getRuntime().halt(0);
        });
        watch.setDaemon(true);
        watch.start();
        orb.run();
        Runtime.getRuntime().halt(0);
    }
}

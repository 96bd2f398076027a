import Peers.*;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.Array;
import java.math.BigDecimal;
import java.util.LinkedHashMap;
import java.util.Map;
import org.omg.CORBA.Any;
import org.omg.CORBA.ORB;

/** The sample values of peers.idl, by the names of its echoes: the first and the second of each. */
final class Samples {
    private Samples() {}

    static Mixed mixed(boolean second) {
        return second
            ? new Mixed((byte) 0, 0, '0', 0, false, (short) 0, (byte) 0, 0, "", (byte) 0, 0, '0', "", Colour.RED, (short) 0,
                "", (byte) 0, 0, (byte) 0, new int[3], new byte[0], 0)
            : new Mixed((byte) 1, 2.5, 'c', -4, true, (short) -6, (byte) 7, -8000000000L, "nine", (byte) 10, 11.25f,
                '\u03a9', "\u03a9\u03bc\u03ad\u03b3\u03b1", Colour.GREEN, (short) 65535, "sixteen", (byte) 17, -18.75,
                (byte) 19, new int[] {20, 21, 22}, new byte[] {1, 2, 3, 4, 5}, -1L);
    }

    static Tree tree(boolean second) {
        Tree[] none = new Tree[0];
        return second ? new Tree("", none) : new Tree("root", new Tree[] {
            new Tree("left", none), new Tree("right", new Tree[] {new Tree("leaf", none)})});
    }

    static Point point(boolean second) {
        return second ? new Point(-1e-300, 2147483647) : new Point(1.5, -2);
    }

    static Point[][] grid(boolean second) {
        Point[][] grid = new Point[2][3];
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 3; j++) grid[i][j] = second ? new Point(0, 0) : new Point(i * 10 + j + 0.5, i * 10 + j);
        return grid;
    }

    static OnColour onColour(boolean second) {
        OnColour union = new OnColour();
        if (second) union.rest(tree(false));
        else union.three(new int[] {1, -2, 3});
        return union;
    }

    static Expression number(double value) {
        Expression expression = new Expression();
        expression.number(value);
        return expression;
    }

    static Expression sum(Expression... terms) {
        Expression expression = new Expression();
        expression.sum(terms);
        return expression;
    }

    static Any any(ORB orb, Object value) {
        Any any = orb.create_any();
        if (value instanceof Integer) any.insert_long((Integer) value);
        else if (value instanceof String) any.insert_string((String) value);
        else if (value instanceof Point) PointHelper.insert(any, (Point) value);
        else if (value instanceof Tree) TreeHelper.insert(any, (Tree) value);
        else throw new IllegalArgumentException(value.toString());
        return any;
    }

    /** Both samples of every type but references. */
    static Map<String, Object[]> all(ORB orb) {
        Map<String, Object[]> all = new LinkedHashMap<>();
        put(all, "short", (short) -32768, (short) 32767);
        put(all, "ushort", (short) 65535, (short) 1);
        put(all, "long", Integer.MIN_VALUE, Integer.MAX_VALUE);
        put(all, "ulong", -1, 7);
        put(all, "longlong", Long.MIN_VALUE, Long.MAX_VALUE);
        put(all, "ulonglong", -1L, 1L);
        put(all, "float", 1.5f, Float.MAX_VALUE);
        put(all, "double", 3.141592653589793, -1e308);
        put(all, "colour", Colour.BLUE, Colour.GREEN);
        put(all, "boolean", true, false);
        put(all, "char", 'x', '~');
        put(all, "wchar", '\u65e5', 'A');
        put(all, "octet", (byte) 255, (byte) 0);
        put(all, "string", "hello, world", "");
        put(all, "wstring", "\u65e5\u672c\u8a9e \u01c5", "");
        put(all, "name", "12345678", "");
        put(all, "widename", "wide\u65e5\u672c", "");
        put(all, "money", new BigDecimal("1234567.89"), new BigDecimal("-9876543.21"));
        put(all, "typecode", MixedHelper.type(), orb.get_primitive_tc(org.omg.CORBA.TCKind.tk_long));
        put(all, "any", any(orb, 42), any(orb, "other"));
        put(all, "point", point(false), point(true));
        put(all, "priced", new Priced((byte) 3, new BigDecimal("1234567.89"), true),
            new Priced((byte) 0, new BigDecimal("-9876543.21"), false));
        put(all, "mixed", mixed(false), mixed(true));
        put(all, "nested",
            new Nested(point(false), mixed(false), tree(false), new Mixed[] {mixed(false), mixed(true)},
                any(orb, tree(false))),
            new Nested(point(true), mixed(true), tree(true), new Mixed[0], orb.create_any()));
        put(all, "tree", tree(false), tree(true));
        put(all, "empty", new Empty(new byte[0]), new Empty(new byte[] {1}));

        OnBoolean yes = new OnBoolean(), no = new OnBoolean();
        yes.yes("yes");
        no.no(-5);
        put(all, "onboolean", yes, no);
        OnChar letters = new OnChar(), other = new OnChar();
        letters.letters('b', 12);
        other.other((byte) 9);
        put(all, "onchar", letters, other);
        OnShort seven = new OnShort(), none = new OnShort();
        seven.seven(point(false));
        none.__default((short) 0);
        put(all, "onshort", seven, none);
        OnLong two = new OnLong(), rest = new OnLong();
        two.two(3, Colour.BLUE);
        rest.other(mixed(false));
        put(all, "onlong", two, rest);
        OnULong wide = new OnULong(), most = new OnULong();
        wide.other((short) -3);
        most.most("max");
        put(all, "onulong", wide, most);
        OnLongLong five = new OnLongLong(), nothing = new OnLongLong();
        five.five("\u65e5\u672c\u8a9e \u01c5");
        nothing.__default(0);
        put(all, "onlonglong", five, nothing);
        put(all, "oncolour", onColour(false), onColour(true));
        put(all, "expression", sum(number(1.5), sum(number(2.5), sum()), number(-1)), number(0));

        put(all, "triple", new int[] {1, -2, 3}, new int[3]);
        put(all, "grid", grid(false), grid(true));
        put(all, "pair", new String[] {"first", ""}, new String[] {"", "second"});
        byte[] octets = new byte[256];
        for (int i = 0; i < octets.length; i++) octets[i] = (byte) i;
        put(all, "octets", octets, new byte[0]);
        put(all, "booleans", new boolean[] {true, false, true}, new boolean[0]);
        put(all, "chars", new char[] {'a', 'b', 'c'}, new char[0]);
        put(all, "widechars", new char[] {'\u03a9', '\u65e5', 'z'}, new char[0]);
        put(all, "shorts", new short[] {-1, 0, 1, 32767}, new short[0]);
        put(all, "longs", new int[] {Integer.MIN_VALUE, 0, Integer.MAX_VALUE}, new int[0]);
        put(all, "longlongs", new long[] {Long.MIN_VALUE, 0, Long.MAX_VALUE}, new long[0]);
        put(all, "floats", new float[] {1.5f, -2.25f, 0}, new float[0]);
        put(all, "doubles", new double[] {1.5, -2.5e300}, new double[0]);
        put(all, "strings", new String[] {"", "a", "a longer one"}, new String[0]);
        put(all, "widestrings", new String[] {"", "\u03a9", "\u65e5\u672c"}, new String[0]);
        put(all, "anys", new Any[] {any(orb, 42), any(orb, "in any"), any(orb, point(false))}, new Any[0]);
        put(all, "colours", new Colour[] {Colour.BLUE, Colour.RED}, new Colour[0]);
        put(all, "points", new Point[] {point(false), point(true)}, new Point[0]);
        put(all, "grids", new Point[][][] {grid(false)}, new Point[0][][]);
        put(all, "table", new int[][] {{1, 2}, {}, {3}}, new int[0][]);
        put(all, "few", new int[] {1, 2, 3, 4}, new int[0]);
        put(all, "fewnames", new String[] {"one", "12345678"}, new String[0]);
        put(all, "choices", new OnColour[] {onColour(false), onColour(true)}, new OnColour[0]);
        return all;
    }

    private static void put(Map<String, Object[]> all, String name, Object first, Object second) {
        all.put(name, new Object[] {first, second});
    }

    /** The class that inserts and extracts values of that sample, or null for a type that an any knows by itself. */
    static Class<?> helper(String name) throws ClassNotFoundException {
        String[] named = {"Colour", "Name", "WideName", "Money", "Point", "Priced", "Mixed", "Nested", "Tree", "Empty",
            "OnBoolean", "OnChar", "OnShort", "OnLong", "OnULong", "OnLongLong", "OnColour", "Expression", "Triple", "Grid",
            "Pair", "Octets", "Booleans", "Chars", "WideChars", "Shorts", "Longs", "LongLongs", "Floats", "Doubles",
            "Strings", "WideStrings", "Anys", "Colours", "Points", "Grids", "Table", "Few", "FewNames", "Choices"};
        for (String type : named)
            if (type.toLowerCase().equals(name)) return Class.forName("Peers." + type + "Helper");
        return null;
    }

    static Any insert(ORB orb, String name, Object value) throws Exception {
        Any any = orb.create_any();
        Class<?> helper = helper(name);
        if (helper != null) {
            for (java.lang.reflect.Method method : helper.getMethods())
                if (method.getName().equals("insert")) method.invoke(null, any, value);
            return any;
        }
        switch (name) {
            case "short": any.insert_short((Short) value); break;
            case "ushort": any.insert_ushort((Short) value); break;
            case "long": any.insert_long((Integer) value); break;
            case "ulong": any.insert_ulong((Integer) value); break;
            case "longlong": any.insert_longlong((Long) value); break;
            case "ulonglong": any.insert_ulonglong((Long) value); break;
            case "float": any.insert_float((Float) value); break;
            case "double": any.insert_double((Double) value); break;
            case "boolean": any.insert_boolean((Boolean) value); break;
            case "char": any.insert_char((Character) value); break;
            case "wchar": any.insert_wchar((Character) value); break;
            case "octet": any.insert_octet((Byte) value); break;
            case "string": any.insert_string((String) value); break;
            case "wstring": any.insert_wstring((String) value); break;
            case "typecode": any.insert_TypeCode((org.omg.CORBA.TypeCode) value); break;
            case "any": any.insert_any((Any) value); break;
            default: throw new org.omg.CORBA.BAD_PARAM(name);
        }
        return any;
    }

    static Object extract(String name, Any any) throws Exception {
        Class<?> helper = helper(name);
        if (helper != null) return helper.getMethod("extract", Any.class).invoke(null, any);
        switch (name) {
            case "short": return any.extract_short();
            case "ushort": return any.extract_ushort();
            case "long": return any.extract_long();
            case "ulong": return any.extract_ulong();
            case "longlong": return any.extract_longlong();
            case "ulonglong": return any.extract_ulonglong();
            case "float": return any.extract_float();
            case "double": return any.extract_double();
            case "boolean": return any.extract_boolean();
            case "char": return any.extract_char();
            case "wchar": return any.extract_wchar();
            case "octet": return any.extract_octet();
            case "string": return any.extract_string();
            case "wstring": return any.extract_wstring();
            case "typecode": return any.extract_TypeCode();
            case "any": return any.extract_any();
            default: throw new org.omg.CORBA.BAD_PARAM(name);
        }
    }

    /** Equal in every field, however deep; floats by their bits, anys by what the samples put in them. */
    static boolean same(Object a, Object b) throws Exception {
        if (a == b) return true;
        if (a == null || b == null) return false;
        if (a instanceof Any && b instanceof Any) return sameAny((Any) a, (Any) b);
        if (a instanceof org.omg.CORBA.TypeCode) return ((org.omg.CORBA.TypeCode) a).equivalent((org.omg.CORBA.TypeCode) b);
        if (a instanceof BigDecimal) return ((BigDecimal) a).compareTo((BigDecimal) b) == 0;
        if (a instanceof org.omg.CORBA.Object) return ((org.omg.CORBA.Object) a)._is_equivalent((org.omg.CORBA.Object) b);
        if (a.getClass() != b.getClass()) return false;
        if (a.getClass().isArray()) {
            if (Array.getLength(a) != Array.getLength(b)) return false;
            for (int i = 0; i < Array.getLength(a); i++) if (!same(Array.get(a, i), Array.get(b, i))) return false;
            return true;
        }
        if (a.getClass().getPackage() == null || !a.getClass().getPackage().getName().equals("Peers") || a instanceof Colour)
            return a.equals(b);
        for (Field field : a.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())) continue;
            field.setAccessible(true);
            if (!same(field.get(a), field.get(b))) return false;
        }
        return true;
    }

    private static boolean sameAny(Any a, Any b) throws Exception {
        int kind = a.type().kind().value();
        if (kind != b.type().kind().value()) return false;
        switch (kind) {
            case org.omg.CORBA.TCKind._tk_null: return true;
            case org.omg.CORBA.TCKind._tk_long: return a.extract_long() == b.extract_long();
            case org.omg.CORBA.TCKind._tk_string: return a.extract_string().equals(b.extract_string());
            case org.omg.CORBA.TCKind._tk_any: return sameAny(a.extract_any(), b.extract_any());
            default: break;
        }
        if (!a.type().equivalent(b.type())) return false;
        return a.type().id().equals(PointHelper.id())
            ? same(PointHelper.extract(a), PointHelper.extract(b))
            : same(TreeHelper.extract(a), TreeHelper.extract(b));
    }
}

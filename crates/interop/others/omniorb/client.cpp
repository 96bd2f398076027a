// omniORB's client of peers.idl: calls each operation with the samples and with extremes, and checks the answers.
//
//   client REFERENCE [--narrow] [--no-callbacks] [--skip NAME]... [--codes] [--ordered] [--bidir] [--stop] [-ORB...]
//
// `--narrow` omits wide characters and texts, which GIOP 1.0 and 1.1 cannot carry with omniORB.
// `--ordered` requires that oneways are served in the order of sending. `--stop` ends the server.
// Prints a line a check, and ends with status 1 if one failed.
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <set>
#include <thread>
#include <vector>
#include "samples.h"
#include "secure.h"

namespace {

CORBA::ORB_var orb;
std::set<std::string> skipped;
int checks = 0, failures = 0;

// Runs one check. It fails if it returns false or throws.
template <class F> void check(const std::string& name, F run) {
  if (skipped.count(name)) {
    std::printf("skipped %s\n", name.c_str());
    return;
  }
  checks++;
  std::string why;
  try {
    if (run()) {
      std::printf("ok %s\n", name.c_str());
      return;
    }
    why = "a wrong answer";
  } catch (CORBA::SystemException& e) {
    const char* minor = e.NP_minorString();
    why = std::string(e._name()) + " minor " + std::to_string(e.minor()) + (minor ? std::string(" ") + minor : "") +
          " completed " + std::to_string(int(e.completed()));
  } catch (CORBA::Exception& e) {
    why = e._name();
  }
  failures++;
  std::printf("FAILED %s: %s\n", name.c_str(), why.c_str());
  std::fflush(stdout);
}

// Runs a call that must raise E; `fits` checks the exception.
template <class E, class F, class G> void check_raises(const std::string& name, F run, G fits) {
  check(name, [&] {
    try {
      run();
    } catch (E& e) {
      return bool(fits(e));
    }
    return false;
  });
}

class Listener : public POA_Peers::Callback {
public:
  char* call(const char* what) { return CORBA::string_dup((std::string("[") + what + "]").c_str()); }
  CORBA::ULong descend(CORBA::Object_ptr peer, CORBA::ULong depth) {
    Peers::Peer_var there = Peers::Peer::_narrow(peer);
    Peers::Callback_var here = _this();
    return there->descend(here, depth - 1) + 1;
  }
  void fail(const char* why) {
    Peers::Detailed detailed;
    detailed.why = CORBA::string_dup(why);
    detailed.code = 17;
    sample(detailed.place, false);
    sample(detailed.notes, false);
    throw detailed;
  }
  void tell(CORBA::ULong number) {
    std::lock_guard<std::mutex> lock(mutex_);
    told_.insert(number);
    changed_.notify_all();
  }
  bool heard(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return told_.size() >= count; });
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<CORBA::ULong> told_;
};

#define WIDE(NAME) (!strcmp(NAME, "wchar") || !strcmp(NAME, "wstring") || !strcmp(NAME, "widename") || \
  !strcmp(NAME, "mixed") || !strcmp(NAME, "nested") || !strcmp(NAME, "onlong") || !strcmp(NAME, "onlonglong") || \
  !strcmp(NAME, "widechars") || !strcmp(NAME, "widestrings"))

template <class T, class F> void number(const char* name, F echo, std::vector<T> values) {
  T first, second;
  sample(first, false);
  sample(second, true);
  values.push_back(first);
  values.push_back(second);
  check(std::string("echo_") + name, [&] {
    for (size_t i = 0; i < values.size(); i++) {
      T a = values[i], b = values[(i + 1) % values.size()], was = b, c;
      T r = echo(a, b, c);
      if (memcmp(&r, &a, sizeof a) || memcmp(&b, &a, sizeof a) || memcmp(&c, &was, sizeof a)) return false;
    }
    return true;
  });
}

void numbers(Peers::Peer_ptr peer) {
  using namespace CORBA;
  typedef std::numeric_limits<float> F;
  typedef std::numeric_limits<double> D;
#define NUMBER(NAME, TYPE, ...) \
  number<TYPE>(#NAME, [&](TYPE a, TYPE& b, TYPE& c) { return peer->echo_##NAME(a, b, c); }, {__VA_ARGS__});
  NUMBER(short, Short, 0, -1)
  NUMBER(ushort, UShort, 0, 32768)
  NUMBER(long, Long, 0, -1, 0x01020304)
  NUMBER(ulong, ULong, 0, 0x80000000u)
  NUMBER(longlong, LongLong, 0, -1, 0x0102030405060708LL)
  NUMBER(ulonglong, ULongLong, 0, 0x8000000000000000ULL)
  NUMBER(float, Float, -0.0f, F::denorm_min(), F::infinity(), -F::infinity(), F::quiet_NaN())
  NUMBER(double, Double, -0.0, D::denorm_min(), D::infinity(), -D::infinity(), D::quiet_NaN(), D::max())
  NUMBER(colour, Peers::Colour, Peers::RED)
#define OCTET_LIKE(NAME, TYPE, FIRST, SECOND) \
  check("echo_" #NAME, [&] { \
    TYPE b = SECOND, c; \
    TYPE r = peer->echo_##NAME(FIRST, b, c); \
    return r == FIRST && b == FIRST && c == SECOND; \
  });
  OCTET_LIKE(boolean, Boolean, true, false)
  OCTET_LIKE(char, Char, 'x', '~')
  OCTET_LIKE(octet, Octet, 255, 0)
}

void texts(Peers::Peer_ptr peer, bool narrow) {
#define TEXT(NAME, TYPE, FIRST, SECOND, COMPARE) \
  check("echo_" #NAME, [&] { \
    TYPE b = FIRST, c, r; \
    r = peer->echo_##NAME(SECOND, b.inout(), c.out()); \
    return !COMPARE(r, SECOND) && !COMPARE(b, SECOND) && !COMPARE(c, FIRST); \
  });
  std::string vast(100000, 'v');
  TEXT(string, CORBA::String_var, sample_string(false), sample_string(true), strcmp)
  TEXT(string, CORBA::String_var, vast.c_str(), "a\"\\\x01\x7f", strcmp)
  TEXT(name, CORBA::String_var, sample_name(false), sample_name(true), strcmp)
  check_raises<CORBA::SystemException>("echo_name over its bound", [&] {
    CORBA::String_var b = CORBA::string_dup(""), c;
    CORBA::String_var r = peer->echo_name("123456789", b.inout(), c.out());
  }, [](CORBA::SystemException&) { return true; });
  if (narrow) return;
#define WIDE_TEXT(NAME, FIRST, SECOND) \
  check("echo_" #NAME, [&] { \
    CORBA::WString_var b = wide(FIRST), c, r; \
    r = peer->echo_##NAME((const CORBA::WChar*)(SECOND), b.inout(), c.out()); \
    return !wcscmp((const wchar_t*)r.in(), SECOND) && !wcscmp((const wchar_t*)b.in(), SECOND) && \
           !wcscmp((const wchar_t*)c.in(), FIRST); \
  });
  WIDE_TEXT(wstring, sample_wstring(false), sample_wstring(true))
  WIDE_TEXT(wstring, L"\u00e9\u03a9\uffee", L"\u3042")
  WIDE_TEXT(widename, sample_widename(false), sample_widename(true))
  check("echo_wchar", [&] {
    CORBA::WChar b = L'A', c;
    CORBA::WChar r = peer->echo_wchar(L'\u65e5', b, c);
    return r == L'\u65e5' && b == L'\u65e5' && c == L'A';
  });
  check("wide text has the code points it was given", [&] {
    Peers::ULongs points;
    points.length(3);
    points[0] = 0x41;
    points[1] = 0x3a9;
    points[2] = 0x65e5;
    CORBA::WString_var text = peer->wide_text_of(points);
    Peers::ULongs_var back = peer->wide_points_of(text);
    return !wcscmp((const wchar_t*)text.in(), L"A\u03a9\u65e5") && same(back.in(), points);
  });
}

// Text outside ASCII: the peers must agree on a code set, and convert.
void codes(Peers::Peer_ptr peer, bool utf8) {
  check("text has the code points it was given", [&] {
    Peers::ULongs points;
    points.length(3);
    points[0] = 'A';
    points[1] = 0xe9;
    points[2] = 0xff;
    CORBA::String_var text = peer->text_of(points);
    Peers::ULongs_var back = peer->points_of(text);
    return !strcmp(text, utf8 ? "A\xc3\xa9\xc3\xbf" : "A\xe9\xff") && same(back.in(), points);
  });
  if (!utf8)
    check_raises<CORBA::DATA_CONVERSION>("text that no Latin-1 has", [&] {
      Peers::ULongs points;
      points.length(1);
      points[0] = 0x65e5;
      CORBA::String_var text = peer->text_of(points);
    }, [](CORBA::DATA_CONVERSION&) { return true; });
}

template <class T, class F> void constructed(const char* name, F echo, bool narrow) {
  if (narrow && WIDE(name)) return;
  check(std::string("echo_") + name, [&] {
    for (int turn = 0; turn < 2; turn++) {
      T a, b, was;
      sample(a, turn == 1);
      sample(b, turn == 0);
      sample(was, turn == 0);
      if (!echo(a, b, was)) return false;
    }
    return true;
  });
}

void constructions(Peers::Peer_ptr peer, bool narrow) {
#define CALL_FIXED(NAME, TYPE) \
  constructed<TYPE>(#NAME, [&](TYPE& a, TYPE& b, TYPE& was) { \
    TYPE c, r; \
    r = peer->echo_##NAME(a, b, c); \
    return same(r, a) && same(b, a) && same(c, was); \
  }, narrow);
  FIXED_TYPES(CALL_FIXED)
#define CALL_VARIABLE(NAME, TYPE) \
  constructed<Peers::TYPE>(#NAME, [&](Peers::TYPE& a, Peers::TYPE& b, Peers::TYPE& was) { \
    Peers::TYPE##_var c; \
    Peers::TYPE##_var r = peer->echo_##NAME(a, b, c.out()); \
    return same(r.in(), a) && same(b, a) && same(c.in(), was); \
  }, narrow);
  VARIABLE_TYPES(CALL_VARIABLE)
  check("discriminators that no label has", [&] {
    Peers::OnLongLong a, b;
    a._default();
    a._d(9000000000000000000LL);
    b._default();
    b._d(-6);
    Peers::OnLongLong_var c;
    Peers::OnLongLong_var r = peer->echo_onlonglong(a, b, c.out());
    Peers::OnULong d, e;
    d.other(-3);
    d._d(4000000000u);
    e.other(4);
    e._d(2147483646);
    Peers::OnULong_var f;
    Peers::OnULong_var s = peer->echo_onulong(d, e, f.out());
    return r->_d() == 9000000000000000000LL && c->_d() == -6 && s->_d() == 4000000000u && s->other() == -3 &&
           f->_d() == 2147483646;
  });
#define CALL_ARRAY(NAME, TYPE) \
  check("echo_" #NAME, [&] { \
    Peers::TYPE a, b, c; \
    sample(a, false); \
    sample(b, true); \
    std::string was = wire_of_##NAME(b), sent = wire_of_##NAME(a); \
    Peers::TYPE##_var r = peer->echo_##NAME(a, b, c); \
    return wire_of_##NAME(r.in()) == sent && wire_of_##NAME(b) == sent && wire_of_##NAME(c) == was; \
  });
  CALL_ARRAY(triple, Triple)
  CALL_ARRAY(grid, Grid)
  check("echo_pair", [&] {
    Peers::Pair a, b;
    Peers::Pair_var c;
    sample(a, false);
    sample(b, true);
    std::string was = wire_of_pair(b), sent = wire_of_pair(a);
    Peers::Pair_var r = peer->echo_pair(a, b, c.out());
    return wire_of_pair(r.in()) == sent && wire_of_pair(b) == sent && wire_of_pair(c.in()) == was;
  });
  check("echo_money", [&] {
    Peers::Money a("1234567.89"), b("-9876543.21"), c, r;
    r = peer->echo_money(a, b, c);
    return r == a && b == a && c == CORBA::Fixed("-9876543.21");
  });
  // JacORB 3.9 omits leading zeros, and with them whole octets.
  check("fixed with leading zeros", [&] {
    for (const char* text : {"-9999999.99", "0.00", "0.01"}) {
      Peers::Money a(text), b("-0.01"), c, r;
      r = peer->echo_money(a, b, c);
      if (r != a || b != a || c != CORBA::Fixed("-0.01")) return false;
    }
    return true;
  });
  check("echo_typecode", [&] {
    CORBA::TypeCode_var b = CORBA::TypeCode::_duplicate(CORBA::_tc_long), c;
    CORBA::TypeCode_var r = peer->echo_typecode(Peers::_tc_Mixed, b.inout(), c.out());
    return r->equivalent(Peers::_tc_Mixed) && b->equivalent(Peers::_tc_Mixed) && c->equal(CORBA::_tc_long);
  });
  check("echo_typecode of a recursive type", [&] {
    CORBA::TypeCode_var b = CORBA::TypeCode::_duplicate(Peers::_tc_Expression), c;
    CORBA::TypeCode_var r = peer->echo_typecode(Peers::_tc_Tree, b.inout(), c.out());
    return r->equivalent(Peers::_tc_Tree) && c->equivalent(Peers::_tc_Expression);
  });
}

const char* const NAMES[] = {
  "short", "ushort", "long", "ulong", "longlong", "ulonglong", "float", "double", "colour", "boolean", "char", "wchar",
  "octet", "string", "wstring", "name", "widename", "money", "typecode", "any", "point", "priced", "onshort", "mixed",
  "nested", "tree", "empty", "onboolean", "onchar", "onlong", "onulong", "onlonglong", "oncolour", "expression", "octets",
  "booleans", "chars", "widechars", "shorts", "longs", "longlongs", "floats", "doubles", "strings", "widestrings", "anys",
  "colours", "points", "grids", "table", "few", "fewnames", "choices", "triple", "grid", "pair"};

// The peer creates an any of each sample, and recognises it in our any, and in its own any that we send back.
void anys(Peers::Peer_ptr peer, bool narrow) {
  for (const char* name : NAMES) {
    if (narrow && WIDE(name)) continue;
    check(std::string("any of ") + name, [&] {
      CORBA::Any_var theirs = peer->sample(name);
      CORBA::Any_var c;
      CORBA::Any b;
      b <<= CORBA::Long(42);
      CORBA::Any_var r = peer->echo_any(theirs, b, c.out());
      CORBA::Long number;
      return peer->is_sample(name, r) && peer->is_sample(name, b) && (c.in() >>= number) && number == 42;
    });
  }
  check("anys of ours", [&] {
    CORBA::Any any;
    bool all = true;
#define OURS(NAME, TYPE) \
  if (!(narrow && WIDE(#NAME))) { \
    TYPE v; \
    sample(v, false); \
    any <<= v; \
    if (!peer->is_sample(#NAME, any)) { std::printf("an any of " #NAME " was not known\n"); all = false; } \
  }
// The any owns a value that is inserted by pointer: copying a struct with a fixed loses the digits (omniORB 4.2).
#define OURS_OWNED(NAME, TYPE) \
  if (!(narrow && WIDE(#NAME))) { \
    TYPE* v = new TYPE; \
    sample(*v, false); \
    any <<= v; \
    if (!peer->is_sample(#NAME, any)) { std::printf("an any of " #NAME " was not known\n"); all = false; } \
  }
#define OURS_PEER(NAME, TYPE) OURS_OWNED(NAME, Peers::TYPE)
    NUMBERS(OURS)
    FIXED_TYPES(OURS_OWNED)
    VARIABLE_TYPES(OURS_PEER)
#define OURS_ARRAY(NAME, TYPE) \
    { Peers::TYPE v; sample(v, false); any <<= Peers::TYPE##_forany(v, 0); \
      if (!peer->is_sample(#NAME, any)) { std::printf("an any of " #NAME " was not known\n"); all = false; } }
    ARRAYS(OURS_ARRAY)
#define OURS_AS(NAME, VALUE) \
    any <<= VALUE; \
    if (!peer->is_sample(NAME, any)) { std::printf("an any of %s was not known\n", NAME); all = false; }
    OURS_AS("boolean", CORBA::Any::from_boolean(true))
    OURS_AS("char", CORBA::Any::from_char('x'))
    OURS_AS("octet", CORBA::Any::from_octet(255))
    OURS_AS("string", sample_string(false))
    OURS_AS("name", CORBA::Any::from_string((char*)sample_name(false), 8))
    OURS_AS("money", CORBA::Any::from_fixed(CORBA::Fixed("1234567.89"), 9, 2))
    OURS_AS("typecode", Peers::_tc_Mixed)
    if (!narrow) {
      OURS_AS("wchar", CORBA::Any::from_wchar(L'\u65e5'))
      OURS_AS("wstring", (const CORBA::WChar*)sample_wstring(false))
      OURS_AS("widename", CORBA::Any::from_wstring((CORBA::WChar*)sample_widename(false), 8))
    }
    CORBA::Any inner;
    inner <<= CORBA::Long(42);
    OURS_AS("any", inner)
    return all;
  });
  check("an any of another type is not the sample", [&] {
    CORBA::Any any;
    any <<= CORBA::Double(1);
    return !peer->is_sample("long", any);
  });
  check("an empty any", [&] {
    CORBA::Any a, b;
    CORBA::Any_var c;
    CORBA::Any_var r = peer->echo_any(a, b, c.out());
    CORBA::TypeCode_var type = r->type();
    return type->kind() == CORBA::tk_null;
  });
}

void exceptions(Peers::Peer_ptr peer) {
  check_raises<Peers::Plain>("raise_plain", [&] { peer->raise_plain(); }, [](Peers::Plain&) { return true; });
  check_raises<Peers::Detailed>("raise_detailed", [&] { peer->raise_detailed("because", -7); }, [](Peers::Detailed& e) {
    Peers::Point place;
    Peers::Strings notes;
    sample(place, false);
    sample(notes, false);
    return !strcmp(e.why, "because") && e.code == -7 && same(e.place, place) && same(e.notes, notes);
  });
  check_raises<Peers::WithAny>("raise_any", [&] {
    CORBA::Any any;
    any <<= "an any";
    peer->raise_any(any);
  }, [](Peers::WithAny& e) {
    const char* text;
    return (e.what >>= text) && !strcmp(text, "an any");
  });
#define EACH_SYSTEM(NAME) \
  check_raises<CORBA::NAME>("raise_system " #NAME, [&] { peer->raise_system(#NAME, 0x12345678, 2); }, \
    [](CORBA::NAME& e) { return e.minor() == 0x12345678 && e.completed() == CORBA::COMPLETED_MAYBE; });
  // Not TRANSIENT, COMM_FAILURE and OBJECT_NOT_EXIST with COMPLETED_NO: clients may try those again.
  OMNIORB_FOR_EACH_SYS_EXCEPTION(EACH_SYSTEM)
  check_raises<CORBA::UNKNOWN>("raise_undeclared", [&] { peer->raise_undeclared(); },
                               [](CORBA::UNKNOWN&) { return true; });
  check_raises<CORBA::OBJECT_NOT_EXIST>("an object that does not exist", [&] {
    Peers::Peer_var missing = peer->missing();
    missing->nothing();
  }, [](CORBA::OBJECT_NOT_EXIST&) { return true; });
  check("_non_existent of it", [&] {
    Peers::Peer_var missing = peer->missing();
    return bool(missing->_non_existent());
  });
  check_raises<CORBA::BAD_OPERATION>("an operation that does not exist", [&] {
    CORBA::Request_var request = peer->_request("no_such_operation");
    request->set_return_type(CORBA::_tc_void);
    request->invoke();
    CORBA::Exception* raised = request->env()->exception();
    CORBA::SystemException* system = raised ? CORBA::SystemException::_downcast(raised) : nullptr;
    if (system) system->_raise();
  }, [](CORBA::BAD_OPERATION&) { return true; });
  check_raises<CORBA::SystemException>("arguments cut short", [&] {
    CORBA::Request_var request = peer->_request("echo_string");
    request->add_in_arg() <<= CORBA::Octet(0) ? "x" : "x";
    request->set_return_type(CORBA::_tc_string);
    request->invoke();
    CORBA::Exception* raised = request->env()->exception();
    CORBA::SystemException* system = raised ? CORBA::SystemException::_downcast(raised) : nullptr;
    if (system) system->_raise();
  }, [](CORBA::SystemException&) { return true; });
}

void objects(Peers::Peer_ptr peer, Peers::Callback_ptr callback) {
  check("echo_object", [&] {
    CORBA::Object_var b = CORBA::Object::_nil(), c;
    CORBA::Object_var r = peer->echo_object(peer, b.inout(), c.out());
    return r->_is_equivalent(peer) && b->_is_equivalent(peer) && CORBA::is_nil(c);
  });
  check("echo_callback", [&] {
    Peers::Callback_var b = Peers::Callback::_duplicate(callback), c;
    Peers::Callback_var r = peer->echo_callback(Peers::Callback::_nil(), b.inout(), c.out());
    return CORBA::is_nil(r) && CORBA::is_nil(b) && c->_is_equivalent(callback);
  });
  check("echo_callbacks", [&] {
    Peers::Callbacks a(2), b;
    a.length(2);
    a[0] = Peers::Callback::_duplicate(callback);
    Peers::Callbacks_var c;
    Peers::Callbacks_var r = peer->echo_callbacks(a, b, c.out());
    return r->length() == 2 && CORBA::Object_ptr(r[0])->_is_equivalent(callback) && CORBA::is_nil(r[1]) &&
           b.length() == 2 && c->length() == 0;
  });
  check("_is_a", [&] {
    return peer->_is_a("IDL:hyoshi/Peers/Base:1.0") && peer->_is_a("IDL:hyoshi/Peers/Peer:1.0") &&
           peer->_is_a("IDL:omg.org/CORBA/Object:1.0") && !peer->_is_a("IDL:hyoshi/Peers/Callback:1.0");
  });
  check("_non_existent", [&] { return !peer->_non_existent(); });
  check("nil", [&] {
    Peers::Peer_var nil = peer->nil();
    return CORBA::is_nil(nil);
  });
  check("the diamond", [&] {
    Peers::Diamond_var diamond = peer->as_diamond();
    diamond->number(-5);
    Peers::Point place;
    sample(place, false);
    diamond->place(place);
    Peers::Strings names;
    sample(names, false);
    diamond->names(names);
    Peers::Strings_var back = diamond->names();
    CORBA::String_var left = diamond->left_says(), right = diamond->right_says(), bottom = diamond->bottom_says();
    return peer->number() == -5 && same(diamond->place(), place) && same(back.in(), names) && !strcmp(left, "left") &&
           !strcmp(right, "right") && !strcmp(bottom, "bottom");
  });
  check("a base narrows to what it is", [&] {
    Peers::Base_var base = peer->as_base();
    Peers::Peer_var again = Peers::Peer::_narrow(base);
    Peers::Callback_var wrong = Peers::Callback::_narrow(base);
    CORBA::String_var kind = base->kind(), says = base->base_says("x");
    return !CORBA::is_nil(again) && CORBA::is_nil(wrong) && *kind.in() && !strcmp(says, "base x");
  });
  check("forwarded", [&] {
    Peers::Peer_var forwarded = peer->forwarded();
    CORBA::Long b = 2, c;
    if (forwarded->echo_long(1, b, c) != 1 || c != 2) return false;
    // A large body must be sent twice.
    Peers::Peer_var again = peer->forwarded();
    Peers::Octets big;
    big.length(300000);
    big[299999] = 7;
    Peers::Octets back;
    Peers::Octets_var out;
    Peers::Octets_var r = again->echo_octets(big, back, out.out());
    return r->length() == 300000 && r[299999] == 7;
  });
}

void large(Peers::Peer_ptr peer) {
  for (CORBA::ULong size : {1000u, 8192u, 65536u, 1048576u, 1048577u})
    check("octets, " + std::to_string(size), [&] {
      Peers::Octets a, b;
      a.length(size);
      for (CORBA::ULong i = 0; i < size; i++) a[i] = i * 7 + i / 256;
      Peers::Octets_var c;
      Peers::Octets_var r = peer->echo_octets(a, b, c.out());
      return same(r.in(), a) && same(b, a) && c->length() == 0;
    });
  check("texts, 20000 of them", [&] {
    Peers::Strings a, b;
    a.length(20000);
    for (CORBA::ULong i = 0; i < a.length(); i++) a[i] = CORBA::string_dup(std::string(i % 40, 's').c_str());
    Peers::Strings_var c;
    Peers::Strings_var r = peer->echo_strings(a, b, c.out());
    return same(r.in(), a) && same(b, a);
  });
}

// `ordered`: omniORB's own server runs requests of one connection side by side, and so out of order.
void oneways(Peers::Peer_ptr peer, bool ordered) {
  check("a burst of oneways", [&] {
    CORBA::Boolean in_order;
    peer->noted(in_order);
    for (CORBA::ULong i = 1; i <= 1000; i++) {
      Peers::Octets raw;
      raw.length(i % 100);
      peer->note(i, raw);
    }
    CORBA::ULong count = 0;
    bool rising = true;
    for (int wait = 0; wait < 500 && count < 1000; wait++) {
      count += peer->noted(in_order);
      rising = rising && in_order;
      if (count < 1000) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (count != 1000) std::printf("%u of 1000 notes came\n", count);
    return count == 1000 && (rising || !ordered);
  });
}

void concurrency(Peers::Peer_ptr peer) {
  check("eight threads", [&] {
    std::vector<std::thread> threads;
    std::mutex mutex;
    int wrong = 0;
    for (int t = 0; t < 8; t++)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; i++) try {
            CORBA::Long b = i, c = 0;
            if (peer->echo_long(t * 1000 + i, b, c) == t * 1000 + i && c == i) continue;
            std::lock_guard<std::mutex> lock(mutex);
            wrong++;
          } catch (CORBA::Exception& e) {
            std::lock_guard<std::mutex> lock(mutex);
            std::printf("a thread got %s\n", e._name());
            wrong++;
            break;
          }
      });
    for (auto& thread : threads) thread.join();
    return wrong == 0;
  });
}

void callbacks(Peers::Peer_ptr peer, Listener& listener, Peers::Callback_ptr callback) {
  check("call_back", [&] {
    CORBA::String_var answer = peer->call_back(callback, "hi");
    return !strcmp(answer, "[hi]");
  });
  check_raises<Peers::Detailed>("call_back_failing", [&] { peer->call_back_failing(callback, "asked"); },
                                [](Peers::Detailed& e) { return !strcmp(e.why, "asked") && e.code == 17; });
  check("descend", [&] { return peer->descend(callback, 3) == 6; });
  check("tell", [&] {
    peer->tell(callback, 20);
    return listener.heard(20);
  });
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    secure();
    orb = CORBA::ORB_init(argc, argv);
    std::string reference;
    bool narrow = false, with_callbacks = true, with_codes = false, bidirectional = false, stop = false, ordered = false;
    for (int i = 1; i < argc; i++) {
      std::string argument = argv[i];
      if (argument == "--narrow") narrow = true;
      else if (argument == "--no-callbacks") with_callbacks = false;
      else if (argument == "--codes") with_codes = true;
      else if (argument == "--bidir") bidirectional = true;
      else if (argument == "--ordered") ordered = true;
      else if (argument == "--stop") stop = true;
      else if (argument == "--skip" && i + 1 < argc) skipped.insert(argv[++i]);
      else reference = argument;
    }
    CORBA::Object_var object = orb->string_to_object(reference.c_str());
    Peers::Peer_var peer = Peers::Peer::_narrow(object);
    if (CORBA::is_nil(peer)) {
      std::printf("FAILED: the reference is not one of a Peer\n");
      return 1;
    }

    object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var(poa->the_POAManager())->activate();
    if (bidirectional) {
      CORBA::PolicyList policies;
      policies.length(1);
      CORBA::Any both;
      both <<= BiDirPolicy::BOTH;
      policies[0] = orb->create_policy(BiDirPolicy::BIDIRECTIONAL_POLICY_TYPE, both);
      PortableServer::POAManager_var manager = poa->the_POAManager();
      poa = poa->create_POA("bidirectional", manager, policies);
    }
    // Never deleted: the adapter holds it to the end.
    Listener& listener = *new Listener;
    PortableServer::ObjectId_var id = poa->activate_object(&listener);
    object = poa->id_to_reference(id);
    Peers::Callback_var callback = Peers::Callback::_narrow(object);

    numbers(peer);
    texts(peer, narrow);
    if (with_codes) codes(peer, getenv("PEER_UTF8") != nullptr);
    constructions(peer, narrow);
    anys(peer, narrow);
    objects(peer, callback);
    exceptions(peer);
    large(peer);
    oneways(peer, ordered);
    concurrency(peer);
    if (with_callbacks) callbacks(peer, listener, callback);
    if (stop) peer->shutdown();
  } catch (CORBA::SystemException& e) {
    std::printf("FAILED: %s minor %s\n", e._name(), e.NP_minorString() ? e.NP_minorString() : "?");
    failures++;
  } catch (CORBA::Exception& e) {
    std::printf("FAILED: %s\n", e._name());
    failures++;
  }
  std::printf("%d checks, %d failed\n", checks, failures);
  std::fflush(stdout);
  return failures ? 1 : 0;
}

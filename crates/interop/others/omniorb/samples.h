// The sample values of peers.idl: every peer, in every language, has the same. `second` selects the other of two.
#ifndef SAMPLES_H
#define SAMPLES_H

#include <cstring>
#include <limits>
#include <string>
#include <peers.hh>
#include <omniORB4/cdrStream.h>

// Wide text of these samples lies in the basic plane, but for extremes that clients add.
inline CORBA::WChar* wide(const wchar_t* text) { return CORBA::wstring_dup((const CORBA::WChar*)text); }

inline void sample(CORBA::Short& v, bool second) { v = second ? 32767 : -32768; }
inline void sample(CORBA::UShort& v, bool second) { v = second ? 1 : 65535; }
inline void sample(CORBA::Long& v, bool second) { v = second ? 2147483647 : std::numeric_limits<CORBA::Long>::min(); }
inline void sample(CORBA::ULong& v, bool second) { v = second ? 7 : 4294967295u; }
inline void sample(CORBA::LongLong& v, bool second) {
  v = second ? std::numeric_limits<CORBA::LongLong>::max() : std::numeric_limits<CORBA::LongLong>::min();
}
inline void sample(CORBA::ULongLong& v, bool second) { v = second ? 1 : std::numeric_limits<CORBA::ULongLong>::max(); }
inline void sample(CORBA::Float& v, bool second) { v = second ? std::numeric_limits<float>::max() : 1.5f; }
inline void sample(CORBA::Double& v, bool second) { v = second ? -1e308 : 3.141592653589793; }
inline void sample(Peers::Colour& v, bool second) { v = second ? Peers::GREEN : Peers::BLUE; }

inline const char* sample_string(bool second) { return second ? "" : "hello, world"; }
inline const wchar_t* sample_wstring(bool second) { return second ? L"" : L"\u65e5\u672c\u8a9e \u01c5"; }
inline const char* sample_name(bool second) { return second ? "" : "12345678"; }
inline const wchar_t* sample_widename(bool second) { return second ? L"" : L"wide\u65e5\u672c"; }

inline void sample(Peers::Money& v, bool second) { v = CORBA::Fixed(second ? "-9876543.21" : "1234567.89"); }

inline void sample(Peers::Point& v, bool second) {
  v.x = second ? -1e-300 : 1.5;
  v.y = second ? 2147483647 : -2;
}

inline void sample(Peers::Triple v, bool second) {
  v[0] = second ? 0 : 1;
  v[1] = second ? 0 : -2;
  v[2] = second ? 0 : 3;
}

inline void sample(Peers::Grid v, bool second) {
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++) {
      v[i][j].x = second ? 0 : i * 10 + j + 0.5;
      v[i][j].y = second ? 0 : i * 10 + j;
    }
}

inline void sample(Peers::Pair v, bool second) {
  v[0] = CORBA::string_dup(second ? "" : "first");
  v[1] = CORBA::string_dup(second ? "second" : "");
}

inline void sample(Peers::Octets& v, bool second) {
  v.length(second ? 0 : 256);
  for (CORBA::ULong i = 0; i < v.length(); i++) v[i] = i;
}

inline void sample(Peers::Mixed& v, bool second) {
  v.a = second ? 0 : 1;
  v.b = second ? 0 : 2.5;
  v.c = second ? '0' : 'c';
  v.d = second ? 0 : -4;
  v.e = !second;
  v.f = second ? 0 : -6;
  v.g = second ? 0 : 7;
  v.h = second ? 0 : -8000000000LL;
  v.i = CORBA::string_dup(second ? "" : "nine");
  v.j = second ? 0 : 10;
  v.k = second ? 0 : 11.25f;
  v.l = second ? L'0' : L'\u03a9';
  v.m = wide(second ? L"" : L"\u03a9\u03bc\u03ad\u03b3\u03b1");
  v.n = second ? Peers::RED : Peers::GREEN;
  v.o = second ? 0 : 65535;
  v.p = CORBA::string_dup(second ? "" : "sixteen");
  v.q = second ? 0 : 17;
  v.r = second ? 0 : -18.75;
  v.s = second ? 0 : 19;
  for (int i = 0; i < 3; i++) v.t[i] = second ? 0 : 20 + i;
  v.u.length(second ? 0 : 5);
  for (CORBA::ULong i = 0; i < v.u.length(); i++) v.u[i] = i + 1;
  v.v = second ? 0 : std::numeric_limits<CORBA::ULongLong>::max();
}

inline void sample(Peers::Tree& v, bool second) {
  v.name = CORBA::string_dup(second ? "" : "root");
  v.branches.length(second ? 0 : 2);
  if (second) return;
  v.branches[0].name = CORBA::string_dup("left");
  v.branches[1].name = CORBA::string_dup("right");
  v.branches[1].branches.length(1);
  v.branches[1].branches[0].name = CORBA::string_dup("leaf");
}

inline void sample(Peers::Nested& v, bool second) {
  sample(v.head, second);
  sample(v.inside, second);
  sample(v.oak, second);
  v.more.length(second ? 0 : 2);
  v.something = CORBA::Any();
  if (second) return;
  sample(v.more[0], false);
  sample(v.more[1], true);
  Peers::Tree tree;
  sample(tree, false);
  v.something <<= tree;
}

inline void sample(Peers::Priced& v, bool second) {
  v.count = second ? 0 : 3;
  sample(v.price, second);
  v.sold = !second;
}

inline void sample(Peers::Empty& v, bool second) {
  v.nothing.length(second ? 1 : 0);
  if (second) v.nothing[0] = 1;
}

// A value without a label is 0 here, because JacORB always writes 0 for it.
inline void sample(Peers::OnBoolean& v, bool second) {
  if (second) v.no(-5);
  else v.yes("yes");
}

inline void sample(Peers::OnChar& v, bool second) {
  if (second) {
    v.other(9);
    v._d('\0');
  } else {
    v.letters(12);
    v._d('b');
  }
}

inline void sample(Peers::OnShort& v, bool second) {
  Peers::Point point;
  sample(point, false);
  if (second) {
    v._default();
    v._d(0);
  } else v.seven(point);
}

inline void sample(Peers::OnLong& v, bool second) {
  if (second) {
    Peers::Mixed mixed;
    sample(mixed, false);
    v.other(mixed);
    v._d(0);
  } else {
    v.two(Peers::BLUE);
    v._d(3);
  }
}

inline void sample(Peers::OnULong& v, bool second) {
  if (second) v.most("max");
  else {
    v.other(-3);
    v._d(0);
  }
}

inline void sample(Peers::OnLongLong& v, bool second) {
  if (second) {
    v._default();
    v._d(0);
  } else v.five((const CORBA::WChar*)sample_wstring(false));
}

inline void sample(Peers::OnColour& v, bool second) {
  if (second) {
    Peers::Tree tree;
    sample(tree, false);
    v.rest(tree);
  } else {
    Peers::Triple triple;
    sample(triple, false);
    v.three(triple);
  }
}

inline void sample(Peers::Expression& v, bool second) {
  if (second) {
    v.number(0);
    return;
  }
  Peers::Expression::_sum_seq none, inner, outer;
  inner.length(2);
  inner[0].number(2.5);
  inner[1].sum(none);
  outer.length(3);
  outer[0].number(1.5);
  outer[1].sum(inner);
  outer[2].number(-1);
  v.sum(outer);
}

inline void sample(Peers::Booleans& v, bool second) {
  v.length(second ? 0 : 3);
  for (CORBA::ULong i = 0; i < v.length(); i++) v[i] = i != 1;
}

inline void sample(Peers::Chars& v, bool second) {
  v.length(second ? 0 : 3);
  for (CORBA::ULong i = 0; i < v.length(); i++) v[i] = 'a' + i;
}

inline void sample(Peers::WideChars& v, bool second) {
  v.length(second ? 0 : 3);
  if (second) return;
  v[0] = L'\u03a9';
  v[1] = L'\u65e5';
  v[2] = L'z';
}

template <class S, class T> void fill(S& v, bool second, std::initializer_list<T> values) {
  v.length(second ? 0 : values.size());
  if (second) return;
  CORBA::ULong i = 0;
  for (const T& value : values) v[i++] = value;
}

inline void sample(Peers::Shorts& v, bool second) { fill<Peers::Shorts, CORBA::Short>(v, second, {-1, 0, 1, 32767}); }
inline void sample(Peers::Longs& v, bool second) {
  fill<Peers::Longs, CORBA::Long>(v, second, {std::numeric_limits<CORBA::Long>::min(), 0, 2147483647});
}
inline void sample(Peers::LongLongs& v, bool second) {
  fill<Peers::LongLongs, CORBA::LongLong>(
      v, second, {std::numeric_limits<CORBA::LongLong>::min(), 0, std::numeric_limits<CORBA::LongLong>::max()});
}
inline void sample(Peers::Floats& v, bool second) { fill<Peers::Floats, float>(v, second, {1.5f, -2.25f, 0.0f}); }
inline void sample(Peers::Doubles& v, bool second) { fill<Peers::Doubles, double>(v, second, {1.5, -2.5e300}); }
inline void sample(Peers::Strings& v, bool second) {
  fill<Peers::Strings, const char*>(v, second, {"", "a", "a longer one"});
}
inline void sample(Peers::WideStrings& v, bool second) {
  v.length(second ? 0 : 3);
  if (second) return;
  v[0] = wide(L"");
  v[1] = wide(L"\u03a9");
  v[2] = wide(L"\u65e5\u672c");
}
inline void sample(Peers::Anys& v, bool second) {
  v.length(second ? 0 : 3);
  if (second) return;
  Peers::Point point;
  sample(point, false);
  v[0] <<= CORBA::Long(42);
  v[1] <<= "in any";
  v[2] <<= point;
}
inline void sample(Peers::Colours& v, bool second) {
  fill<Peers::Colours, Peers::Colour>(v, second, {Peers::BLUE, Peers::RED});
}
inline void sample(Peers::Points& v, bool second) {
  v.length(second ? 0 : 2);
  if (second) return;
  sample(v[0], false);
  sample(v[1], true);
}
inline void sample(Peers::Grids& v, bool second) {
  v.length(second ? 0 : 1);
  if (!second) sample(v[0], false);
}
inline void sample(Peers::Table& v, bool second) {
  v.length(second ? 0 : 3);
  if (second) return;
  fill<Peers::Longs, CORBA::Long>(v[0], false, {1, 2});
  fill<Peers::Longs, CORBA::Long>(v[2], false, {3});
}
inline void sample(Peers::Few& v, bool second) { fill<Peers::Few, CORBA::Long>(v, second, {1, 2, 3, 4}); }
inline void sample(Peers::FewNames& v, bool second) {
  fill<Peers::FewNames, const char*>(v, second, {"one", "12345678"});
}
inline void sample(Peers::Choices& v, bool second) {
  v.length(second ? 0 : 2);
  if (second) return;
  sample(v[0], false);
  sample(v[1], true);
}

// All types with a C++ class of variable size, so that one line of code serves them all: X(echo's name, type).
#define VARIABLE_TYPES(X) \
  X(mixed, Mixed) X(nested, Nested) X(tree, Tree) X(empty, Empty) X(onboolean, OnBoolean) X(onchar, OnChar) \
  X(onlong, OnLong) X(onulong, OnULong) X(onlonglong, OnLongLong) X(oncolour, OnColour) X(expression, Expression) \
  X(octets, Octets) X(booleans, Booleans) X(chars, Chars) X(widechars, WideChars) X(shorts, Shorts) X(longs, Longs) \
  X(longlongs, LongLongs) X(floats, Floats) X(doubles, Doubles) X(strings, Strings) X(widestrings, WideStrings) \
  X(anys, Anys) X(colours, Colours) X(points, Points) X(grids, Grids) X(table, Table) X(few, Few) \
  X(fewnames, FewNames) X(choices, Choices)
// Those of fixed size, and numbers.
#define FIXED_TYPES(X) X(point, Peers::Point) X(priced, Peers::Priced) X(onshort, Peers::OnShort)
#define NUMBERS(X) \
  X(short, CORBA::Short) X(ushort, CORBA::UShort) X(long, CORBA::Long) X(ulong, CORBA::ULong) \
  X(longlong, CORBA::LongLong) X(ulonglong, CORBA::ULongLong) X(float, CORBA::Float) X(double, CORBA::Double) \
  X(colour, Peers::Colour)
#define ARRAYS(X) X(triple, Triple) X(grid, Grid) X(pair, Pair)

// Two values are the same if they are the same on the wire: omniORB generates no comparison.
inline std::string octets_of(cdrMemoryStream& s) { return std::string((const char*)s.bufPtr(), s.bufSize()); }
template <class T> std::string on_wire(const T& v) {
  cdrMemoryStream s(CORBA::ULong(0), CORBA::Boolean(1));
  v >>= s;
  return octets_of(s);
}
// The padding in an any is undefined, so anys are compared by the values of the samples.
inline std::string on_wire(const CORBA::Any& v) {
  CORBA::Long number;
  const char* text;
  const Peers::Point* point;
  const Peers::Tree* tree;
  const CORBA::Any* inner;
  if (v >>= number) return "long " + std::to_string(number);
  if (v >>= text) return "string " + std::string(text);
  if (v >>= point) return "Point " + on_wire(*point);
  if (v >>= tree) return "Tree " + on_wire(*tree);
  if (v >>= inner) return "any " + on_wire(*inner);
  CORBA::TypeCode_var type = v.type();
  return "of kind " + std::to_string(type->kind());
}
inline std::string on_wire(const Peers::Nested& v) {
  std::string all = on_wire(v.head) + on_wire(v.inside) + on_wire(v.oak);
  for (CORBA::ULong i = 0; i < v.more.length(); i++) all += on_wire(v.more[i]);
  return all + on_wire(v.something);
}
inline std::string on_wire(const Peers::Anys& v) {
  std::string all;
  for (CORBA::ULong i = 0; i < v.length(); i++) all += on_wire(v[i]) + ";";
  return all;
}
template <class T> bool same(const T& a, const T& b) { return on_wire(a) == on_wire(b); }
#define SAME_ARRAY(NAME, TYPE, EACH) \
  inline std::string wire_of_##NAME(const Peers::TYPE v) { std::string all; EACH; return all; }
SAME_ARRAY(triple, Triple, for (int i = 0; i < 3; i++) all += std::to_string(v[i]) + ",")
SAME_ARRAY(grid, Grid, for (int i = 0; i < 2; i++) for (int j = 0; j < 3; j++) all += on_wire(v[i][j]))
SAME_ARRAY(pair, Pair, for (int i = 0; i < 2; i++) all += std::string(v[i]) + "\n")

#endif

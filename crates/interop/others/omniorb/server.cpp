// omniORB's server of peers.idl: answers each operation as the interface file describes.
//
//   server [--name NAME] [--ior FILE] [-ORB...]
//
// Prints "ready IOR:..." when it serves; ends when its standard input does, so that it cannot outlive a test.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <unistd.h>
#include "samples.h"
#include "secure.h"
#include <omniORB4/Naming.hh>

namespace {

CORBA::ORB_var orb;
PortableServer::POA_var forwarding, deserted;
Peers::Peer_var myself;

// Every operation prints its name: the log of a failed test shows the last one.
void record(const char* what) {
  std::printf("served %s\n", what);
  std::fflush(stdout);
}

class Servant : public POA_Peers::Peer {
public:
  // The attributes and operations of the diamond.
  char* kind() { return CORBA::string_dup("omniORB"); }
  char* base_says(const char* what) { return CORBA::string_dup((std::string("base ") + what).c_str()); }
  CORBA::Long number() { return number_; }
  void number(CORBA::Long to) { number_ = to; }
  char* left_says() { return CORBA::string_dup("left"); }
  Peers::Point place() { return place_; }
  void place(const Peers::Point& to) { place_ = to; }
  char* right_says() { return CORBA::string_dup("right"); }
  Peers::Strings* names() { return new Peers::Strings(names_); }
  void names(const Peers::Strings& to) { names_ = to; }
  char* bottom_says() { return CORBA::string_dup("bottom"); }

#define ECHO(NAME, TYPE) \
  TYPE echo_##NAME(TYPE a, TYPE& b, TYPE& c) { record("echo_" #NAME); c = b; b = a; return a; }
  NUMBERS(ECHO)
  ECHO(boolean, CORBA::Boolean)
  ECHO(char, CORBA::Char)
  ECHO(wchar, CORBA::WChar)
  ECHO(octet, CORBA::Octet)

#define ECHO_FIXED(NAME, TYPE) \
  TYPE echo_##NAME(const TYPE& a, TYPE& b, TYPE& c) { record("echo_" #NAME); c = b; b = a; TYPE r; r = a; return r; }
  FIXED_TYPES(ECHO_FIXED)
  ECHO_FIXED(money, Peers::Money)

#define ECHO_VARIABLE(NAME, TYPE) \
  Peers::TYPE* echo_##NAME(const Peers::TYPE& a, Peers::TYPE& b, Peers::TYPE##_out c) { \
    record("echo_" #NAME); \
    c = new Peers::TYPE(b); \
    b = a; \
    return new Peers::TYPE(a); \
  }
  VARIABLE_TYPES(ECHO_VARIABLE)
  ECHO_VARIABLE(callbacks, Callbacks)

  Peers::Triple_slice* echo_triple(const Peers::Triple a, Peers::Triple b, Peers::Triple c) {
    record("echo_triple");
    Peers::Triple_copy(c, b);
    Peers::Triple_copy(b, a);
    return Peers::Triple_dup(a);
  }
  Peers::Grid_slice* echo_grid(const Peers::Grid a, Peers::Grid b, Peers::Grid c) {
    record("echo_grid");
    Peers::Grid_copy(c, b);
    Peers::Grid_copy(b, a);
    return Peers::Grid_dup(a);
  }
  Peers::Pair_slice* echo_pair(const Peers::Pair a, Peers::Pair b, Peers::Pair_out c) {
    record("echo_pair");
    c = Peers::Pair_dup(b);
    Peers::Pair_copy(b, a);
    return Peers::Pair_dup(a);
  }

#define ECHO_STRING(NAME, OUT) \
  char* echo_##NAME(const char* a, char*& b, OUT c) { \
    record("echo_" #NAME); \
    c = CORBA::string_dup(b); \
    CORBA::string_free(b); \
    b = CORBA::string_dup(a); \
    return CORBA::string_dup(a); \
  }
  ECHO_STRING(string, CORBA::String_out)
  ECHO_STRING(name, Peers::Name_out)
#define ECHO_WIDE(NAME, OUT) \
  CORBA::WChar* echo_##NAME(const CORBA::WChar* a, CORBA::WChar*& b, OUT c) { \
    record("echo_" #NAME); \
    c = CORBA::wstring_dup(b); \
    CORBA::wstring_free(b); \
    b = CORBA::wstring_dup(a); \
    return CORBA::wstring_dup(a); \
  }
  ECHO_WIDE(wstring, CORBA::WString_out)
  ECHO_WIDE(widename, Peers::WideName_out)

  CORBA::Any* echo_any(const CORBA::Any& a, CORBA::Any& b, CORBA::Any_OUT_arg c) {
    record("echo_any");
    c = new CORBA::Any(b);
    b = a;
    return new CORBA::Any(a);
  }
  CORBA::Object_ptr echo_object(CORBA::Object_ptr a, CORBA::Object_ptr& b, CORBA::Object_out c) {
    record("echo_object");
    c = b;
    b = CORBA::Object::_duplicate(a);
    return CORBA::Object::_duplicate(a);
  }
  CORBA::TypeCode_ptr echo_typecode(CORBA::TypeCode_ptr a, CORBA::TypeCode_ptr& b, CORBA::TypeCode_OUT_arg c) {
    record("echo_typecode");
    c = b;
    b = CORBA::TypeCode::_duplicate(a);
    return CORBA::TypeCode::_duplicate(a);
  }
  Peers::Callback_ptr echo_callback(Peers::Callback_ptr a, Peers::Callback_ptr& b, Peers::Callback_out c) {
    record("echo_callback");
    c = b;
    b = Peers::Callback::_duplicate(a);
    return Peers::Callback::_duplicate(a);
  }

  Peers::ULongs* points_of(const char* text) {
    record("points_of");
    // omniORB's native code set here is ISO 8859-1 or UTF-8, as it was started.
    Peers::ULongs_var points = new Peers::ULongs;
    const unsigned char* p = (const unsigned char*)text;
    bool utf8 = getenv("PEER_UTF8") != nullptr;
    while (*p) {
      CORBA::ULong c = *p++;
      if (utf8 && c >= 0xC0) {
        int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
        c &= 0x3F >> more;
        while (more-- && *p) c = c << 6 | (*p++ & 0x3F);
      }
      points->length(points->length() + 1);
      points[points->length() - 1] = c;
    }
    return points._retn();
  }
  Peers::ULongs* wide_points_of(const CORBA::WChar* text) {
    record("wide_points_of");
    Peers::ULongs_var points = new Peers::ULongs;
    for (; *text; text++) {
      points->length(points->length() + 1);
      points[points->length() - 1] = (CORBA::ULong)*text;
    }
    return points._retn();
  }
  char* text_of(const Peers::ULongs& points) {
    record("text_of");
    std::string text;
    bool utf8 = getenv("PEER_UTF8") != nullptr;
    for (CORBA::ULong i = 0; i < points.length(); i++) {
      CORBA::ULong c = points[i];
      if (!utf8 || c < 0x80) text += char(c);
      else if (c < 0x800) {
        text += char(0xC0 | c >> 6);
        text += char(0x80 | (c & 0x3F));
      } else {
        text += char(0xE0 | c >> 12);
        text += char(0x80 | (c >> 6 & 0x3F));
        text += char(0x80 | (c & 0x3F));
      }
    }
    return CORBA::string_dup(text.c_str());
  }
  CORBA::WChar* wide_text_of(const Peers::ULongs& points) {
    record("wide_text_of");
    CORBA::WString_var text = CORBA::wstring_alloc(points.length());
    for (CORBA::ULong i = 0; i < points.length(); i++) text[i] = (CORBA::WChar)points[i];
    text[points.length()] = 0;
    return text._retn();
  }

  CORBA::Any* sample(const char* name) {
    record("sample");
    CORBA::Any_var any = new CORBA::Any;
    if (!insert(any.inout(), name)) throw CORBA::BAD_PARAM(0, CORBA::COMPLETED_NO);
    return any._retn();
  }
  CORBA::Boolean is_sample(const char* name, const CORBA::Any& value) {
    record("is_sample");
    return holds(value, name);
  }

  void nothing() {}
  void raise_plain() { throw Peers::Plain(); }
  void raise_detailed(const char* why, CORBA::Long code) {
    Peers::Detailed detailed;
    detailed.why = CORBA::string_dup(why);
    detailed.code = code;
    ::sample(detailed.place, false);
    ::sample(detailed.notes, false);
    throw detailed;
  }
  void raise_any(const CORBA::Any& what) { throw Peers::WithAny(what); }
  void raise_system(const char* name, CORBA::ULong minor, CORBA::ULong completed) {
    CORBA::CompletionStatus status = CORBA::CompletionStatus(completed);
#define RAISE(NAME) \
  if (!strcmp(name, #NAME)) throw CORBA::NAME(minor, status);
    OMNIORB_FOR_EACH_SYS_EXCEPTION(RAISE)
    throw CORBA::BAD_PARAM(0, CORBA::COMPLETED_NO);
  }
  void raise_undeclared() { throw Peers::Plain(); }
  void sleep_ms(CORBA::ULong duration) { std::this_thread::sleep_for(std::chrono::milliseconds(duration)); }

  void note(CORBA::ULong number, const Peers::Octets& raw) {
    std::lock_guard<std::mutex> lock(notes_);
    if (number <= last_ || raw.length() != number % 100) rising_ = false;
    last_ = number;
    count_++;
  }
  CORBA::ULong noted(CORBA::Boolean& in_order) {
    std::lock_guard<std::mutex> lock(notes_);
    CORBA::ULong count = count_;
    in_order = rising_;
    count_ = last_ = 0;
    rising_ = true;
    return count;
  }

  char* call_back(Peers::Callback_ptr who, const char* what) {
    record("call_back");
    return who->call(what);
  }
  void call_back_failing(Peers::Callback_ptr who, const char* why) {
    record("call_back_failing");
    who->fail(why);
  }
  CORBA::ULong descend(Peers::Callback_ptr who, CORBA::ULong depth) {
    return depth == 0 ? 0 : who->descend(myself, depth) + 1;
  }
  void tell(Peers::Callback_ptr who, CORBA::ULong count) {
    for (CORBA::ULong i = 1; i <= count; i++) who->tell(i);
  }

  Peers::Peer_ptr forwarded() { return reference(forwarding, "forwarded"); }
  Peers::Peer_ptr missing() { return reference(deserted, "missing"); }
  Peers::Peer_ptr nil() { return Peers::Peer::_nil(); }
  Peers::Diamond_ptr as_diamond() { return Peers::Diamond::_duplicate(myself); }
  Peers::Base_ptr as_base() { return Peers::Base::_duplicate(myself); }

  void shutdown() { orb->shutdown(false); }

private:
  static Peers::Peer_ptr reference(PortableServer::POA_ptr poa, const char* name) {
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId(name);
    CORBA::Object_var object = poa->create_reference_with_id(id, "IDL:hyoshi/Peers/Peer:1.0");
    return Peers::Peer::_unchecked_narrow(object);
  }

  static bool insert(CORBA::Any& any, const std::string& name) {
#define INSERT(NAME, TYPE) if (name == #NAME) { TYPE v; ::sample(v, false); any <<= v; return true; }
// The any owns a value that is inserted by pointer: copying a struct with a fixed loses the digits (omniORB 4.2).
#define INSERT_FIXED(NAME, TYPE) \
  if (name == #NAME) { TYPE* v = new TYPE; ::sample(*v, false); any <<= v; return true; }
#define INSERT_PEER(NAME, TYPE) INSERT_FIXED(NAME, Peers::TYPE)
#define INSERT_ARRAY(NAME, TYPE) \
  if (name == #NAME) { Peers::TYPE v; ::sample(v, false); any <<= Peers::TYPE##_forany(v, 0); return true; }
    NUMBERS(INSERT)
    FIXED_TYPES(INSERT_FIXED)
    VARIABLE_TYPES(INSERT_PEER)
    ARRAYS(INSERT_ARRAY)
    if (name == "boolean") any <<= CORBA::Any::from_boolean(true);
    else if (name == "char") any <<= CORBA::Any::from_char('x');
    else if (name == "wchar") any <<= CORBA::Any::from_wchar(L'\u65e5');
    else if (name == "octet") any <<= CORBA::Any::from_octet(255);
    else if (name == "string") any <<= sample_string(false);
    else if (name == "wstring") any <<= (const CORBA::WChar*)sample_wstring(false);
    else if (name == "name") any <<= CORBA::Any::from_string((char*)sample_name(false), 8);
    else if (name == "widename") any <<= CORBA::Any::from_wstring((CORBA::WChar*)sample_widename(false), 8);
    else if (name == "money") any <<= CORBA::Any::from_fixed(CORBA::Fixed("1234567.89"), 9, 2);
    else if (name == "typecode") any <<= Peers::_tc_Mixed;
    else if (name == "any") {
      CORBA::Any inner;
      inner <<= CORBA::Long(42);
      any <<= inner;
    } else return false;
    return true;
  }

  static bool holds(const CORBA::Any& any, const std::string& name) {
#define HOLDS_NUMBER(NAME, TYPE) \
  if (name == #NAME) { TYPE v, found; ::sample(v, false); return (any >>= found) && found == v; }
#define HOLDS(NAME, TYPE) \
  if (name == #NAME) { TYPE v; const TYPE* found; ::sample(v, false); return (any >>= found) && same(*found, v); }
#define HOLDS_PEER(NAME, TYPE) HOLDS(NAME, Peers::TYPE)
#define HOLDS_ARRAY(NAME, TYPE) \
  if (name == #NAME) { \
    Peers::TYPE v; \
    Peers::TYPE##_forany found; \
    ::sample(v, false); \
    return (any >>= found) && wire_of_##NAME(found.in()) == wire_of_##NAME(v); \
  }
    NUMBERS(HOLDS_NUMBER)
    FIXED_TYPES(HOLDS)
    VARIABLE_TYPES(HOLDS_PEER)
    ARRAYS(HOLDS_ARRAY)
    CORBA::Boolean boolean;
    CORBA::Char character;
    CORBA::WChar wide_character;
    CORBA::Octet octet;
    const char* text;
    const CORBA::WChar* wide_text;
    CORBA::Fixed fixed;
    CORBA::TypeCode_ptr type;
    const CORBA::Any* inner;
    if (name == "boolean") return (any >>= CORBA::Any::to_boolean(boolean)) && boolean;
    if (name == "char") return (any >>= CORBA::Any::to_char(character)) && character == 'x';
    if (name == "wchar") return (any >>= CORBA::Any::to_wchar(wide_character)) && wide_character == L'\u65e5';
    if (name == "octet") return (any >>= CORBA::Any::to_octet(octet)) && octet == 255;
    if (name == "string") return (any >>= text) && !strcmp(text, sample_string(false));
    if (name == "wstring") return (any >>= wide_text) && same_wide(wide_text, sample_wstring(false));
    // JacORB omits a string's bound in the type code.
    if (name == "name")
      return ((any >>= CORBA::Any::to_string(text, 8)) || (any >>= text)) && !strcmp(text, sample_name(false));
    if (name == "widename")
      return ((any >>= CORBA::Any::to_wstring(wide_text, 8)) || (any >>= wide_text)) &&
             same_wide(wide_text, sample_widename(false));
    if (name == "money") return (any >>= CORBA::Any::to_fixed(fixed, 9, 2)) && fixed == CORBA::Fixed("1234567.89");
    if (name == "typecode") return (any >>= type) && type->equivalent(Peers::_tc_Mixed);
    if (name == "any") {
      CORBA::Long number;
      return (any >>= inner) && (*inner >>= number) && number == 42;
    }
    throw CORBA::BAD_PARAM(0, CORBA::COMPLETED_NO);
  }

  static bool same_wide(const CORBA::WChar* a, const wchar_t* b) { return !wcscmp((const wchar_t*)a, b); }

  CORBA::Long number_ = 0;
  Peers::Point place_ = {0, 0};
  Peers::Strings names_;
  std::mutex notes_;
  CORBA::ULong count_ = 0, last_ = 0;
  bool rising_ = true;
};

// Answers each request with LOCATION_FORWARD to the real object.
class Forwarder : public POA_PortableServer::ServantLocator {
public:
  PortableServer::Servant preinvoke(const PortableServer::ObjectId&, PortableServer::POA_ptr, const char*,
                                    PortableServer::ServantLocator::Cookie&) {
    record("forward");
    throw PortableServer::ForwardRequest(myself);
  }
  void postinvoke(const PortableServer::ObjectId&, PortableServer::POA_ptr, const char*,
                  PortableServer::ServantLocator::Cookie, PortableServer::Servant) {}
};

PortableServer::POA_ptr make_poa(PortableServer::POA_ptr parent, const char* name, bool locator, bool bidirectional) {
  PortableServer::POAManager_var manager = parent->the_POAManager();
  CORBA::PolicyList policies;
  policies.length(3);
  policies[0] = parent->create_lifespan_policy(PortableServer::PERSISTENT);
  policies[1] = parent->create_id_assignment_policy(PortableServer::USER_ID);
  if (locator) {
    policies[2] = parent->create_request_processing_policy(PortableServer::USE_SERVANT_MANAGER);
    policies.length(4);
    policies[3] = parent->create_servant_retention_policy(PortableServer::NON_RETAIN);
  } else {
    policies[2] = parent->create_request_processing_policy(PortableServer::USE_ACTIVE_OBJECT_MAP_ONLY);
  }
  if (bidirectional) {
    CORBA::Any both;
    both <<= BiDirPolicy::BOTH;
    policies.length(policies.length() + 1);
    policies[policies.length() - 1] = orb->create_policy(BiDirPolicy::BIDIRECTIONAL_POLICY_TYPE, both);
  }
  return parent->create_POA(name, manager, policies);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    secure();
    orb = CORBA::ORB_init(argc, argv);
    std::string name, file;
    bool bidirectional = false;
    for (int i = 1; i < argc; i++) {
      std::string argument = argv[i];
      if (argument == "--name" && i + 1 < argc) name = argv[++i];
      else if (argument == "--ior" && i + 1 < argc) file = argv[++i];
      else if (argument == "--bidir") bidirectional = true;
      else {
        std::fprintf(stderr, "unknown argument %s\n", argv[i]);
        return 2;
      }
    }
    CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var root = PortableServer::POA::_narrow(object);
    PortableServer::POA_var poa;
    if (bidirectional) {
      poa = make_poa(root, "bidirectional", false, true);
    } else {
      // Its keys are the plain ids, so corbaloc:iiop:host:port/Peer names the object.
      object = orb->resolve_initial_references("omniINSPOA");
      poa = PortableServer::POA::_narrow(object);
    }
    forwarding = make_poa(root, "forwarding", true, false);
    deserted = make_poa(root, "deserted", false, false);
    forwarding->set_servant_manager((new Forwarder)->_this());

    Servant* servant = new Servant;
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("Peer");
    poa->activate_object_with_id(id, servant);
    object = poa->id_to_reference(id);
    myself = Peers::Peer::_narrow(object);
    PortableServer::POAManager_var(root->the_POAManager())->activate();
    PortableServer::POAManager_var(poa->the_POAManager())->activate();

    if (!name.empty()) {
      object = orb->resolve_initial_references("NameService");
      CosNaming::NamingContext_var naming = CosNaming::NamingContext::_narrow(object);
      CosNaming::Name path(1);
      path.length(1);
      path[0].id = CORBA::string_dup(name.c_str());
      naming->rebind(path, myself);
    }
    CORBA::String_var ior = orb->object_to_string(myself);
    if (!file.empty()) {
      std::FILE* out = std::fopen(file.c_str(), "w");
      if (!out) {
        std::perror(file.c_str());
        return 2;
      }
      std::fprintf(out, "%s\n", ior.in());
      std::fclose(out);
    }
    std::printf("ready %s\n", ior.in());
    std::fflush(stdout);

    std::thread([] {
      char octet;
      while (read(0, &octet, 1) > 0) {}
      _exit(0);
    }).detach();
    orb->run();
    orb->destroy();
    return 0;
  } catch (CORBA::Exception& e) {
    std::fprintf(stderr, "server: %s\n", e._name());
    return 1;
  }
}

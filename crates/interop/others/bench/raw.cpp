// The same ping-pong over bare sockets: one write and one read a message and side, as many octets as GIOP would send, a
// thread and a connection for each caller. `raw server tcp|unix:PATH` prints "ready ADDRESS"; `raw client ADDRESS [SCALE [CASE]]`.
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "report.h"

namespace {

// Octets of a GIOP 1.2 request and reply around the arguments.
const size_t REQUEST = 64, REPLY = 24;

// The head of each request, before the padding: the length of the rest, and the length of the answer, 0 for none.
struct Head {
  uint32_t length, answer;
};

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

int made(const std::string& address, bool listening) {
  int s;
  if (address.rfind("unix:", 0) == 0) {
    sockaddr_un to = {};
    to.sun_family = AF_UNIX;
    strncpy(to.sun_path, address.c_str() + 5, sizeof to.sun_path - 1);
    s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (listening) unlink(to.sun_path);
    if (listening ? bind(s, (sockaddr*)&to, sizeof to) || listen(s, 128) : connect(s, (sockaddr*)&to, sizeof to)) die("unix");
  } else {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(listening ? 0 : std::atoi(address.c_str()));
    s = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (listening ? bind(s, (sockaddr*)&to, sizeof to) || listen(s, 128) : connect(s, (sockaddr*)&to, sizeof to)) die("tcp");
  }
  return s;
}

bool whole(int s, char* to, size_t length, bool out) {
  while (length > 0) {
    ssize_t n = out ? write(s, to, length) : read(s, to, length);
    if (n <= 0) return false;
    to += n;
    length -= n;
  }
  return true;
}

// Reads the available octets, usually one whole message: two system calls for each message and side.
void answer(int s) {
  std::vector<char> in(1 << 18), out(1 << 18);
  size_t from = 0, to = 0;
  for (;;) {
    Head head;
    while (to - from < sizeof head || (memcpy(&head, in.data() + from, sizeof head), to - from < head.length)) {
      if (from == to) from = to = 0;
      else if (in.size() - from < (1 << 17)) {
        memmove(in.data(), in.data() + from, to - from);
        to -= from;
        from = 0;
      }
      ssize_t n = read(s, in.data() + to, in.size() - to);
      if (n <= 0) {
        close(s);
        return;
      }
      to += n;
    }
    if (head.answer) {
      memcpy(out.data(), in.data() + from, std::min<size_t>(head.answer, head.length));
      if (!whole(s, out.data(), head.answer, true)) return;
    }
    from += head.length;
  }
}

int serve(const std::string& where) {
  int s = made(where, true);
  if (where == "tcp") {
    sockaddr_in at;
    socklen_t length = sizeof at;
    getsockname(s, (sockaddr*)&at, &length);
    std::printf("ready %d\n", ntohs(at.sin_port));
  } else std::printf("ready %s\n", where.c_str());
  std::fflush(stdout);
  std::thread([] {
    char octet;
    while (read(0, &octet, 1) > 0) {}
    _exit(0);
  }).detach();
  for (;;) {
    int connection = accept(s, nullptr, nullptr);
    if (connection < 0) die("accept");
    int on = 1;
    setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::thread(answer, connection).detach();
  }
}

struct Line {
  int socket;
  std::vector<char> out, in;
  Line(const std::string& address, size_t octets, bool oneway) : socket(made(address, false)) {
    size_t with_length = octets ? octets + 4 : 0;
    Head head = {uint32_t(REQUEST + with_length), oneway ? 0 : uint32_t(REPLY + with_length)};
    out.resize(head.length);
    in.resize(head.answer);
    memcpy(out.data(), &head, sizeof head);
  }
  ~Line() { close(socket); }
  void call() {
    if (!whole(socket, out.data(), out.size(), true) || !whole(socket, in.data(), in.size(), false)) die("call");
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "server") return serve(argv[2]);
  if (argc < 3) {
    std::fprintf(stderr, "raw server tcp|unix:PATH | raw client ADDRESS [SCALE [CASE]]\n");
    return 2;
  }
  size_t scale = argc > 3 ? std::atoi(argv[3]) : 1;
  for (const Case& each : CASES) {
    if (!wanted(each, argc > 4 ? argv[4] : "")) continue;
    size_t count = each.count / scale + 1;
    if (each.oneway) {
      Line line(argv[2], each.octets, true);
      for (int warm = 1; warm >= 0; warm--) {
        uint64_t start = now();
        for (size_t i = 0; i < count; i++)
          if (!whole(line.socket, line.out.data(), line.out.size(), true)) die("put");
        // A request with an answer, which shows that the server has read all of them.
        Head last = {uint32_t(REQUEST), uint32_t(REPLY)};
        std::vector<char> request(REQUEST), reply(REPLY);
        memcpy(request.data(), &last, sizeof last);
        if (!whole(line.socket, request.data(), REQUEST, true) || !whole(line.socket, reply.data(), REPLY, false)) die("last");
        if (!warm) report(each.name, {}, now() - start, count);
      }
      continue;
    }
    measure(each.name, each.threads, count, [&](size_t) {
      auto line = std::make_shared<Line>(argv[2], each.octets, false);
      return [line] { line->call(); };
    });
  }
  return 0;
}

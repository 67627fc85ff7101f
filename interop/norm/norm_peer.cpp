// A sender and a receiver of one object over NORM, with Debian's libnorm.
//
//     norm_peer send FILE --group ADDRESS:PORT [options]
//     norm_peer recv DIRECTORY --group ADDRESS:PORT [options]
//
// The group may be a unicast address. What a sender's group is decides where its datagrams go; a
// receiver of unicast listens on the port of its group and answers whoever sends to it. The file
// arrives as the name in its NORM_INFO, which is the file's own name.
//
// Prints one JSON object. Exits with 0 when the object was sent (flushed, or acknowledged by all
// that `--ack` names) or received, with 1 when it was not, with 2 for a wrong command line.

#include <normApi.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  bool is_sender = false;
  std::string path;
  std::string address;
  UINT16 port = 0;
  std::string interface;
  NormNodeId node = 0;
  UINT16 instance = 1;
  double rate_bps = 10e6;
  // TFMCC chooses the rate, from `rate_bps` on.
  bool congestion_control = false;
  UINT16 segment = 1024;
  UINT16 block = 64;
  UINT16 parity = 16;
  unsigned char auto_parity = 0;
  // 0 lets the library choose.
  UINT8 fec_id = 0;
  // Values below zero leave the library's own.
  double grtt_s = -1;
  double grtt_max_s = -1;
  double backoff = -1;
  int group_size = -1;
  int robust = -1;
  bool probes = true;
  bool unicast_nack = false;
  bool silent = false;
  bool sync_all = false;
  UINT32 buffer = 64u << 20;
  unsigned int socket_buffer = 4u << 20;
  int ttl = 1;
  std::string object = "file";
  bool info = true;
  // What the sender's application says to those of receivers, as often as is robust.
  std::string command;
  bool auto_ack = false;
  std::vector<NormNodeId> ack;
  double timeout_s = 60;
  // How long a receiver stays for what the sender still asks of it: so long, and with `--stay`
  // until its standard input ends.
  double linger_s = 0;
  bool stay = false;
  unsigned int debug = 0;
  bool trace = false;
};

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error(why); }

void split_group(const std::string& text, Options& options) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) fail("--group wants ADDRESS:PORT");
  options.address = text.substr(0, colon);
  options.port = static_cast<UINT16>(std::stoul(text.substr(colon + 1)));
}

// Options without a value; false if `key` is not one of them.
bool read_switch(const std::string& key, Options& options) {
  if (key == "--cc") {
    options.congestion_control = true;
  } else if (key == "--no-probes") {
    options.probes = false;
  } else if (key == "--no-info") {
    options.info = false;
  } else if (key == "--unicast-nack") {
    options.unicast_nack = true;
  } else if (key == "--silent") {
    options.silent = true;
  } else if (key == "--sync-all") {
    options.sync_all = true;
  } else if (key == "--stay") {
    options.stay = true;
  } else if (key == "--trace") {
    options.trace = true;
  } else {
    return false;
  }
  return true;
}

// What decides how the session behaves; false if `key` is not one of them.
bool read_session_value(const std::string& key, const std::string& value, Options& options) {
  if (key == "--grtt") {
    options.grtt_s = std::stod(value);
  } else if (key == "--grtt-max") {
    options.grtt_max_s = std::stod(value);
  } else if (key == "--backoff") {
    options.backoff = std::stod(value);
  } else if (key == "--group-size") {
    options.group_size = std::stoi(value);
  } else if (key == "--robust") {
    options.robust = std::stoi(value);
  } else if (key == "--buffer") {
    options.buffer = static_cast<UINT32>(std::stoul(value));
  } else if (key == "--socket-buffer") {
    options.socket_buffer = static_cast<unsigned int>(std::stoul(value));
  } else if (key == "--ttl") {
    options.ttl = std::stoi(value);
  } else if (key == "--timeout") {
    options.timeout_s = std::stod(value);
  } else if (key == "--linger") {
    options.linger_s = std::stod(value);
  } else if (key == "--debug") {
    options.debug = static_cast<unsigned int>(std::stoul(value));
  } else {
    return false;
  }
  return true;
}

// Who talks to whom, and what is sent how.
void read_value(const std::string& key, const std::string& value, Options& options) {
  if (read_session_value(key, value, options)) return;
  if (key == "--group") {
    split_group(value, options);
  } else if (key == "--interface") {
    options.interface = value;
  } else if (key == "--node") {
    options.node = static_cast<NormNodeId>(std::stoul(value));
  } else if (key == "--instance") {
    options.instance = static_cast<UINT16>(std::stoul(value));
  } else if (key == "--rate") {
    options.rate_bps = std::stod(value);
  } else if (key == "--segment") {
    options.segment = static_cast<UINT16>(std::stoul(value));
  } else if (key == "--block") {
    options.block = static_cast<UINT16>(std::stoul(value));
  } else if (key == "--parity") {
    options.parity = static_cast<UINT16>(std::stoul(value));
  } else if (key == "--auto-parity") {
    options.auto_parity = static_cast<unsigned char>(std::stoul(value));
  } else if (key == "--fec") {
    options.fec_id = static_cast<UINT8>(std::stoul(value));
  } else if (key == "--command") {
    options.command = value;
  } else if (key == "--object") {
    options.object = value;
  } else if (key == "--ack") {
    if (value == "auto") {
      options.auto_ack = true;
    } else {
      options.ack.push_back(static_cast<NormNodeId>(std::stoul(value)));
    }
  } else {
    fail("unknown option " + key);
  }
}

Options read_options(const std::vector<std::string>& words) {
  if (words.size() < 2 || (words[0] != "send" && words[0] != "recv")) {
    fail("norm_peer send FILE|recv DIRECTORY --group ADDRESS:PORT [options]");
  }
  Options options;
  options.is_sender = words[0] == "send";
  options.path = words[1];
  options.node = options.is_sender ? 1 : 2;
  for (std::size_t at = 2; at < words.size(); ++at) {
    if (read_switch(words[at], options)) continue;
    if (at + 1 == words.size()) fail(words[at] + " wants a value, or is unknown");
    read_value(words[at], words[at + 1], options);
    ++at;
  }
  if (options.port == 0) fail("--group is missing");
  if (options.object != "file" && options.object != "data" && options.object != "stream") {
    fail("--object is file, data or stream");
  }
  return options;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The library with one session, and its events.
class Session {
 public:
  explicit Session(const Options& given) : options(given) {
    instance = NormCreateInstance();
    if (instance == NORM_INSTANCE_INVALID) fail("no NORM instance");
    if (options.debug > 0) NormSetDebugLevel(options.debug);
    session = NormCreateSession(instance, options.address.c_str(), options.port, options.node);
    if (session == NORM_SESSION_INVALID) fail("no NORM session");
    NormSetMessageTrace(session, options.trace);
    if (!options.interface.empty() &&
        !NormSetMulticastInterface(session, options.interface.c_str())) {
      fail("cannot use interface " + options.interface);
    }
    if (!NormIsUnicastAddress(options.address.c_str())) {
      NormSetTTL(session, static_cast<unsigned char>(options.ttl));
    }
    // A segment above the MTU would otherwise never leave.
    NormSetFragmentation(session, true);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { NormDestroyInstance(instance); }

  // The next event until `end`; false when there was none.
  bool next(NormEvent& event, Clock::time_point end) {
    for (;;) {
      if (NormGetNextEvent(instance, &event, false)) return true;
      const auto left = std::chrono::duration<double>(end - Clock::now()).count();
      if (left <= 0) return false;
      pollfd ready{NormGetDescriptor(instance), POLLIN, 0};
      poll(&ready, 1, left < 1 ? static_cast<int>(left * 1000) + 1 : 1000);
    }
  }

  const Options& options;
  NormInstanceHandle instance;
  NormSessionHandle session;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Clock::time_point deadline(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(seconds));
}

class Sender : Session {
 public:
  explicit Sender(const Options& given) : Session(given) {
    configure();
    if (!NormStartSender(session, options.instance, options.buffer, options.segment, options.block,
                         options.parity, options.fec_id)) {
      fail("cannot start the sender");
    }
    NormSetTxSocketBuffer(session, options.socket_buffer);
    if (options.auto_parity > 0) NormSetAutoParity(session, options.auto_parity);
    for (const auto node : options.ack) NormAddAckingNode(session, node);
    if (options.auto_ack) NormSetAutoAckingNodes(session, NORM_TRACK_RECEIVERS);
  }

  int run() {
    const auto start = Clock::now();
    const auto end = deadline(options.timeout_s);
    if (!options.command.empty()) {
      const auto length = static_cast<unsigned int>(options.command.size());
      if (!NormSendCommand(session, options.command.data(), length, true)) fail("no command");
    }
    const NormObjectHandle object = enqueue();
    if (object == NORM_OBJECT_INVALID) fail("cannot enqueue the object");
    if (options.object == "stream") write_stream(object, end);
    // A stream's watermark is where it was written to, so it is set after that.
    if (wants_ack()) NormSetWatermark(session, object, true);
    double sent_s = 0;
    bool is_done = false;
    NormEvent event;
    while (!is_done && next(event, end)) {
      switch (event.type) {
        case NORM_TX_OBJECT_SENT:
          sent_s = seconds_since(start);
          break;
        case NORM_TX_FLUSH_COMPLETED:
          is_done = !wants_ack();
          break;
        case NORM_TX_WATERMARK_COMPLETED:
          is_done = NormGetAckingStatus(session) == NORM_ACK_SUCCESS;
          if (!is_done) NormSetWatermark(session, object, true);
          break;
        default:
          break;
      }
    }
    std::printf("{\"done\": %s, \"sent_s\": %.6f, \"elapsed_s\": %.6f, \"grtt_s\": %.6f}\n",
                is_done ? "true" : "false", sent_s, seconds_since(start),
                NormGetGrttEstimate(session));
    NormStopSender(session);
    return is_done ? 0 : 1;
  }

 private:
  bool wants_ack() const { return options.auto_ack || !options.ack.empty(); }

  void configure() {
    // Otherwise it would bind the receiver's port, and on one host take its datagrams.
    if (NormIsUnicastAddress(options.address.c_str())) NormSetTxOnly(session, true);
    NormSetTxRate(session, options.rate_bps);
    NormSetCongestionControl(session, options.congestion_control);
    if (!options.probes) NormSetGrttProbingMode(session, NORM_PROBE_NONE);
    if (options.grtt_max_s >= 0) NormSetGrttMax(session, options.grtt_max_s);
    if (options.grtt_s >= 0) NormSetGrttEstimate(session, options.grtt_s);
    if (options.backoff >= 0) NormSetBackoffFactor(session, options.backoff);
    if (options.group_size >= 0) {
      NormSetGroupSize(session, static_cast<unsigned int>(options.group_size));
    }
    if (options.robust >= 0) NormSetTxRobustFactor(session, options.robust);
  }

  NormObjectHandle enqueue() {
    const std::string name = options.info ? base_name(options.path) : "";
    const auto length = static_cast<unsigned int>(name.size());
    const char* info = name.empty() ? nullptr : name.data();
    if (options.object == "file") {
      return NormFileEnqueue(session, options.path.c_str(), info, length);
    }
    content = read_file(options.path);
    if (options.object == "data") {
      return NormDataEnqueue(session, content.data(), static_cast<UINT32>(content.size()), info,
                             length);
    }
    return NormStreamOpen(session, options.buffer, info, length);
  }

  void write_stream(NormObjectHandle stream, Clock::time_point end) {
    std::size_t at = 0;
    NormEvent event;
    while (at < content.size()) {
      const auto left = static_cast<unsigned int>(content.size() - at);
      at += NormStreamWrite(stream, content.data() + at, left);
      if (at < content.size() && !next(event, end)) fail("the stream was not sent in time");
    }
    NormStreamFlush(stream, true, NORM_FLUSH_ACTIVE);
    // Its end is a segment like others, and acknowledged like them.
    NormStreamClose(stream, true);
  }

  // The library sends DATA and STREAM objects from here.
  std::string content;
};

class Receiver : Session {
 public:
  explicit Receiver(const Options& given) : Session(given) {
    if (!NormSetCacheDirectory(instance, options.path.c_str())) fail("cannot use " + options.path);
    // A feedback to the group of a unicast session would go to the receiver itself.
    const bool is_unicast = NormIsUnicastAddress(options.address.c_str());
    NormSetDefaultUnicastNack(session, options.unicast_nack || is_unicast);
    NormSetSilentReceiver(session, options.silent);
    if (options.sync_all) NormSetDefaultSyncPolicy(session, NORM_SYNC_ALL);
    NormSetRxPortReuse(session, true);
    if (!NormStartReceiver(session, options.buffer)) fail("cannot start the receiver");
    NormSetRxSocketBuffer(session, options.socket_buffer);
  }

  int run() {
    std::printf("{\"ready\": true}\n");
    std::fflush(stdout);
    const auto end = deadline(options.timeout_s);
    NormEvent event;
    bool is_done = false;
    while (!is_done && next(event, end)) {
      switch (event.type) {
        case NORM_RX_OBJECT_NEW:
          if (!is_started) start = Clock::now();
          is_started = true;
          break;
        case NORM_RX_OBJECT_INFO:
          take_name(event.object);
          break;
        case NORM_RX_CMD_NEW:
          tell_command(event.sender);
          break;
        case NORM_RX_OBJECT_UPDATED:
          if (NormObjectGetType(event.object) == NORM_OBJECT_STREAM) take(event.object);
          break;
        case NORM_RX_OBJECT_COMPLETED:
          store(event.object);
          is_done = true;
          break;
        default:
          break;
      }
    }
    const double elapsed_s = is_started ? seconds_since(start) : 0;
    std::printf("{\"done\": %s, \"elapsed_s\": %.6f}\n", is_done ? "true" : "false", elapsed_s);
    std::fflush(stdout);
    if (is_done) linger();
    return is_done ? 0 : 1;
  }

 private:
  // The library's own thread answers the sender meanwhile; its events do not matter any more.
  void linger() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    char ignored[256];
    bool is_asked_to_stay = options.stay;
    const auto last = deadline(options.linger_s);
    while (is_asked_to_stay || Clock::now() < last) {
      if (is_asked_to_stay && poll(&input, 1, 50) > 0) {
        is_asked_to_stay = read(STDIN_FILENO, ignored, sizeof ignored) > 0;
      }
      NormEvent event;
      while (next(event, std::min(last, deadline(0.05)))) continue;
    }
  }

  void take_name(NormObjectHandle object) {
    char buffer[256];
    const auto length = NormObjectGetInfo(object, buffer, sizeof buffer);
    const auto found = base_name(std::string(buffer, length));
    if (!found.empty() && found != "." && found != "..") name = found;
  }

  // Prints a line of JSON; commands of tests need no escapes.
  static void tell_command(NormNodeHandle sender) {
    char buffer[9000];
    unsigned int length = sizeof buffer;
    if (!NormNodeGetCommand(sender, buffer, &length)) return;
    std::printf("{\"command\": \"%.*s\"}\n", static_cast<int>(length), buffer);
    std::fflush(stdout);
  }

  std::string target() const { return options.path + "/" + name; }

  void store(NormObjectHandle object) {
    switch (NormObjectGetType(object)) {
      case NORM_OBJECT_FILE:
        if (!NormFileRename(object, target().c_str())) fail("cannot rename the file");
        break;
      case NORM_OBJECT_DATA: {
        std::ofstream file(target(), std::ios::binary);
        file.write(NormDataAccessData(object),
                   static_cast<std::streamsize>(NormObjectGetSize(object)));
        break;
      }
      case NORM_OBJECT_STREAM:
        stream.close();
        if (rename(stream_path().c_str(), target().c_str()) != 0) fail("cannot rename the stream");
        break;
      case NORM_OBJECT_NONE:
        break;
    }
  }

  // Appends what a stream has. Its end, once read, is the event "completed".
  // Its name may come later.
  void take(NormObjectHandle object) {
    if (!stream.is_open()) stream.open(stream_path(), std::ios::binary);
    char buffer[65536];
    for (;;) {
      unsigned int length = sizeof buffer;
      if (!NormStreamRead(object, buffer, &length)) fail("the stream broke");
      if (length == 0) return;
      stream.write(buffer, length);
    }
  }

  std::string stream_path() const { return options.path + "/stream.part"; }

  bool is_started = false;
  Clock::time_point start;
  std::string name = "received.bin";
  std::ofstream stream;
};

}  // namespace

int main(int count, char** words) {
  signal(SIGPIPE, SIG_IGN);
  try {
    const Options options = read_options({words + 1, words + count});
    return options.is_sender ? Sender(options).run() : Receiver(options).run();
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "norm_peer: not a number: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "norm_peer: %s\n", error.what());
    return 2;
  }
}

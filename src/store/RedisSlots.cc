#include "store/RedisSlots.h"

#include <algorithm>
#include <string>

namespace workflow {

namespace {

// CRC-16/XMODEM, which is what the specification of Redis Cluster names.
uint16_t crc16(std::string_view bytes) {
  unsigned crc = 0;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned>(static_cast<unsigned char>(byte)) << 8;
    for (int bit = 0; bit < 8; bit++) {
      crc = (crc & 0x8000U) != 0 ? (crc << 1) ^ 0x1021U : crc << 1;
    }
    crc &= 0xffffU;
  }
  return static_cast<uint16_t>(crc);
}

}  // namespace

size_t RedisSlots::of_key(std::string_view key) {
  const size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) {
      key = key.substr(open + 1, close - open - 1);
    }
  }
  return crc16(key) % kCount;
}

bool RedisSlots::parse(const protocol::RedisValue& reply, const std::string& from,
                       RedisSlots* slots) {
  slots->masters.clear();
  slots->ids.clear();
  slots->owners.assign(kCount, -1);
  if (!reply.is_array()) return false;
  int64_t slots_left = kCount;  // all ranges together have no more
  for (size_t i = 0; i < reply.arr_size(); i++) {
    const protocol::RedisValue& range = reply[i];
    if (range.arr_size() < 3 || !range[0].is_int() || !range[1].is_int() ||
        range[2].arr_size() < 2 || !range[2][1].is_int()) {
      return false;
    }
    const int64_t first = range[0].int_value();
    const int64_t last = range[1].int_value();
    const int64_t port = range[2][1].int_value();
    if (first < 0 || last < first || last >= static_cast<int64_t>(kCount) || port < 1 ||
        port > 65535) {
      return false;
    }
    slots_left -= last - first + 1;
    if (slots_left < 0) return false;
    RedisUrl::Server master;
    master.host = range[2][0].is_nil() ? "" : range[2][0].string_value();
    if (master.host == "?") {
      continue;  // the node does not know where the master is
    }
    if (master.host.empty()) {
      master.host = from;
    }
    master.port = static_cast<unsigned short>(port);
    auto place = std::find(slots->masters.begin(), slots->masters.end(), master);
    if (place == slots->masters.end()) {
      place = slots->masters.insert(place, std::move(master));
      slots->ids.push_back(range[2].arr_size() > 2 ? range[2][2].string_value() : "");
    }
    std::fill(slots->owners.begin() + first, slots->owners.begin() + last + 1,
              static_cast<int>(place - slots->masters.begin()));
  }
  return true;
}

}  // namespace workflow

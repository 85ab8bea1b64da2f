#pragma once

#include <llhttp.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/HttpFields.h"
#include "workflow/HttpLimits.h"

// The two pieces of llhttp's work: the grammar of a complete head, and that of chunk framing.
// Lines are cut, measured and checked for their CRLF before they come here; what a message's
// fields mean for its framing is decided afterwards (HttpFraming). llhttp therefore always sees
// the same bytes in the same pieces, however they arrived.
namespace protocol {

// Parses a whole head, start line to empty line, and lists its fields as views into `head`.
// Returns 0 or the status to refuse with. The parser's state lives on the stack meanwhile.
int parse_head(bool is_request, const char* head, size_t size, const HttpLimits& limits,
               HttpFields* fields);

// Chunk framing. Give it whole lines (trailer field, empty line), and data in any pieces. Chunk
// extensions stay outside: llhttp does not take all that RFC 9112, 7.1.1 allows.
class ChunkGrammar {
 public:
  ChunkGrammar();
  ChunkGrammar(const ChunkGrammar&) = delete;
  ChunkGrammar& operator=(const ChunkGrammar&) = delete;

  // The digits of a chunk-size line; false when malformed. `*size` is the size they announce.
  bool take_size(std::string_view digits, uint64_t* size);
  // Chunk data, the line end after it, or a trailer field line; false when malformed.
  bool take(const char* bytes, size_t length);
  // The name of the trailer field just taken; empty if that was no field.
  std::string_view trailer_name() const { return trailer_name_; }
  // The empty line that ends the message was taken.
  bool is_complete() const { return complete_; }

 private:
  static int on_chunk_header(llhttp_t* parser);
  static int on_trailer_name(llhttp_t* parser, const char* at, size_t length);
  static int on_message_complete(llhttp_t* parser);
  static const llhttp_settings_t kSettings;

  llhttp_t parser_;
  std::string_view trailer_name_;
  bool size_known_ = false;
  bool complete_ = false;
};

}  // namespace protocol

// libFuzzer on the tokenizer's C ABI (ext/bpe.h): classes, tables and texts from anywhere, in any order, refused or not.
//
// An input is a list of calls: one byte of kind, two of length, and so many bytes of argument. What must hold: no sanitizer speaks; the
// pre-tokens' lengths add up to the text's; encoded ids are bytes' or merges' own; training lists merges of ids that there are.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <set>
#include <vector>

#include "bpe.h"

namespace {

#define MUST(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) fprintf(stderr, "MUST %s\n", #condition), abort();                                               \
  } while (0)

// Letters, numbers and spaces of ASCII, one letter range above, and others.
std::vector<int32_t> usual() {
  std::vector<int32_t> runs;
  int32_t last = -1, length = 0;
  for (int32_t code = 0; code < 0x110000; code++) {
    int32_t kind = (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= 0xC0 && code < 0x2000) ? 1
                   : code >= '0' && code <= '9'                                                                    ? 2
                   : code == ' ' || (code >= 9 && code <= 13) || code == 0x2003 ? 3 : 0;
    if (kind != last && length) runs.push_back(length << 2 | last), length = 0;
    last = kind, length++;
  }
  runs.push_back(length << 2 | last);
  return runs;
}

std::vector<int32_t> words(const uint8_t* data, size_t size) {
  std::vector<int32_t> found(size / 4);
  if (!found.empty()) memcpy(found.data(), data, 4 * found.size());
  return found;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<int32_t> classes = usual();
  static ptl_bpe* const bpe = ptl_bpe_open(classes.data(), int64_t(classes.size())); // loading forgets what was before
  MUST(bpe);
  std::vector<int32_t> bytes(256);
  for (int i = 0; i < 256; i++) bytes[size_t(i)] = i;
  MUST(!ptl_bpe_load(bpe, bytes.data(), 256));
  std::set<int32_t> ids(bytes.begin(), bytes.end());
  while (size >= 3) {
    const uint8_t kind = data[0];
    size_t length = std::min(size_t(data[1] | data[2] << 8), size - 3);
    std::vector<uint8_t> text(data + 3, data + 3 + length); // of its own length, so that a byte read behind it is seen
    data += 3 + length, size -= 3 + length;
    switch (kind % 8) {
    case 0: { // classes from anywhere
      std::vector<int32_t> runs = words(text.data(), length);
      ptl_bpe* other = ptl_bpe_open(runs.data(), int64_t(runs.size()));
      if (other) ptl_bpe_close(other);
      break;
    }
    case 1: { // a table of merges in two bytes each, over the bytes' own ids
      std::vector<int32_t> table = bytes;
      for (size_t i = 0; i + 1 < length; i += 2) table.insert(table.end(), {text[i], text[i + 1], int32_t(256 + i / 2)});
      if (kind & 8) for (size_t i = 256; i + 3 < table.size(); i += 6) table[i + 3] = table[i + 2]; // merges of merges
      if (ptl_bpe_load(bpe, table.data(), int64_t(table.size()))) break;
      ids.clear(), ids.insert(bytes.begin(), bytes.end());
      for (size_t i = 258; i < table.size(); i += 3) ids.insert(table[i]);
      break;
    }
    case 2: { // a table of any words; what it says need not be of use
      std::vector<int32_t> table = kind & 24 ? bytes : std::vector<int32_t>();
      for (size_t i = 0; kind & 16 && i + 5 <= length; i += 5) memcpy(&table[text[i]], &text[i + 1], 4);
      std::vector<int32_t> more = words(text.data(), kind & 16 ? 0 : length);
      table.insert(table.end(), more.begin(), more.end());
      ptl_bpe_load(bpe, table.data(), int64_t(table.size()));
      ids.clear();
      break;
    }
    case 3: case 4: {
      int64_t count = ptl_bpe_encode(bpe, text.data(), int64_t(length));
      MUST(count >= 0 && count <= int64_t(length));
      for (int64_t i = 0; i < count && !ids.empty(); i++) MUST(ids.count(ptl_bpe_result(bpe)[i]));
      break;
    }
    case 5: {
      int64_t count = ptl_bpe_split(bpe, text.data(), int64_t(length)), sum = 0;
      for (int64_t i = 0; i < count; i++) {
        MUST(ptl_bpe_result(bpe)[i] > 0);
        sum += ptl_bpe_result(bpe)[i];
      }
      MUST(sum == int64_t(length));
      break;
    }
    case 6: MUST(ptl_bpe_count(bpe, text.data(), int64_t(length)) >= 0); break;
    default: {
      int64_t tokens = length ? text[0] : 300, minimum = length > 1 ? int8_t(text[1]) : 1;
      int64_t merges = ptl_bpe_train(bpe, tokens, minimum);
      const int32_t* found = ptl_bpe_result(bpe);
      for (int64_t i = 0; i < merges; i++)
        MUST(found[3 * i] >= 0 && found[3 * i + 1] >= 0 && found[3 * i + 2] >= 256 && found[3 * i + 2] < 256 + tokens);
      break;
    }
    }
  }
  MUST(ptl_bpe_split(bpe, nullptr, -1) == kBpeArgument);
  return 0;
}

// libFuzzer on the tape walker: hostile tapes on small regions, under the address and undefined-behaviour sanitizers.
//
// An input is a page of regions and then records, as ext/engine.h has them:
//     [0] which build of the kernels  [1] what the regions hold  [4..40) nine uint32, the regions' bytes  [64..) records
// What must hold: no sanitizer speaks; a record that the check refuses, replay refuses; of a tape that it accepts every operand lies in
// its region, by 128-bit arithmetic of this file's own; and a record changes no byte outside the operands it may write.
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine_state.h"
#include "kernel_list.h"

namespace {

constexpr size_t kHead = 64, kRecord = 256, kMostRecords = 160;
constexpr uint32_t kMostBytes = (1 << 20) + (1 << 17); // of a region: as many channels as layernorm_backward takes go in
constexpr int64_t kUsualBytes = 40960, kMostWork = int64_t(1) << 27; // larger records are checked and not run

struct Row {
  const char *name, *letters, *operands;
};
#define ROW(NAME, LETTERS, PARAMETERS, OPERANDS) {#NAME, LETTERS, OPERANDS},
const Row kRows[] = {PTL_KERNELS(ROW)};
#undef ROW

#define MUST(condition, ...)                                                                                           \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "MUST %s: ", #condition);                                                                        \
      fprintf(stderr, __VA_ARGS__);                                                                                    \
      fprintf(stderr, "\n");                                                                                           \
      abort();                                                                                                         \
    }                                                                                                                  \
  } while (0)

struct Span {
  int region;
  __int128 begin, end;
  bool written;
};

// Where a record's operands lie by the list of kernels alone.
std::vector<Span> spans(const int64_t* record) {
  const Row& row = kRows[record[0]];
  std::vector<Span> found;
  for (const char* at = row.operands; *at;) {
    at += strcspn(at, "<>");
    bool written = *at++ == '>';
    __int128 bytes = 4;
    for (; *at && *at != ' ' && *at != '='; at++) {
      const char* letter = strchr(row.letters, *at);
      const int64_t times = *at >= '0' && *at <= '9' ? *at - '0' : std::max<int64_t>(0, record[1 + (letter - row.letters)]);
      bytes = std::min(bytes * times, __int128(1) << 62); // far outside any region, and 128 bits hold the next product too
    }
    at += strcspn(at, " ");
    if (*at) at++;
    uint64_t address = uint64_t(record[16 + found.size()]);
    __int128 begin = __int128(address & ((uint64_t(1) << 56) - 1));
    found.push_back({int(address >> 56), begin, begin + bytes, written});
  }
  return found;
}

// About the multiplications of a record: time twice where it attends, else the three largest sizes.
double work(const int64_t* record) {
  double sizes[8], product = 1.0;
  const Row& row = kRows[record[0]];
  const size_t letters = strlen(row.letters);
  for (size_t i = 0; i < letters; i++) {
    sizes[i] = double(record[1 + i]);
    if (!strncmp(row.name, "attention", 9)) product *= row.letters[i] == 'T' ? sizes[i] * sizes[i] : sizes[i];
  }
  if (product > 1.0) return product;
  std::sort(sizes, sizes + letters, std::greater<double>());
  for (size_t i = 0; i < std::min(letters, size_t(3)); i++) product *= sizes[i];
  return product;
}

// The room that an allocation has before and behind what was asked for becomes forbidden ground.
void guard(const char* memory, int64_t bytes) {
  char name[8];
  void* block;
  size_t size;
  __asan_locate_address(const_cast<char*>(memory), name, sizeof name, &block, &size);
  const char *start = static_cast<char*>(block), *end = start + size;
  __asan_poison_memory_region(start, size_t(memory - start));
  __asan_poison_memory_region(memory + bytes, size_t(end - memory - bytes));
}

ptl_engine* engine_of(int choice) {
  static const char* const names[] = {"sse2", "avx2", "avx512"};
  static ptl_engine* engines[3];
  static bool tried[3];
  if (!tried[choice]) {
    tried[choice] = true;
    engines[choice] = ptl_open_isa(1, names[choice]);
    if (engines[choice]) {
      guard(engines[choice]->thread_scratch.get(), ptl::kThreadScratchBytes);
      guard(engines[choice]->shared_scratch.get(), ptl::kSharedScratchBytes);
    }
  }
  return engines[choice] ? engines[choice] : ptl_open_isa(1, names[0]) ? engine_of(0) : nullptr;
}

// Regions' contents: zeros; small whole numbers, which are tokens, targets and positions; floats; any bits; or all of them.
void fill(char* memory, int64_t bytes, uint8_t mode, std::minstd_rand& random) {
  for (int64_t at = 0; at + 4 <= bytes; at += 4) {
    if (at >= kUsualBytes) { // the same again: drawing is slow
      memcpy(memory + at, memory + at - kUsualBytes, size_t(std::min(kUsualBytes, bytes - at)));
      at += kUsualBytes - 4;
      continue;
    }
    int kind = mode % 5 == 4 ? int(random() % 4) : mode % 5;
    int32_t whole = int32_t(random() % 9) - (random() % 16 ? 0 : 2);
    float real = float(int(random() % 2001) - 1000) / 250.0f;
    uint32_t any = uint32_t(random()) << 16 ^ uint32_t(random());
    if (kind == 0) memset(memory + at, 0, 4);
    if (kind == 1) memcpy(memory + at, &whole, 4);
    if (kind == 2) memcpy(memory + at, &real, 4);
    if (kind == 3) memcpy(memory + at, &any, 4);
  }
}

void provide(ptl_engine* engine, const int64_t* regions, uint8_t contents) {
  std::minstd_rand random(contents + 1u);
  for (int region = 0; region < ptl::kRegions; region++) {
    MUST(!ptl_allocate(engine, region, regions[region]), "%s", ptl_error(engine));
    guard(engine->regions[region].memory, regions[region]);
    fill(engine->regions[region].memory, regions[region], contents, random);
  }
}

void unchanged_but(const std::vector<Span>& written, const std::vector<std::string>& before, ptl_engine* engine,
                   const char* name) {
  for (int region = 0; region < ptl::kRegions; region++) {
    const char* now = engine->regions[region].memory;
    if (!memcmp(now, before[size_t(region)].data(), before[size_t(region)].size())) continue;
    for (size_t at = 0; at < before[size_t(region)].size(); at++) {
      if (now[at] == before[size_t(region)][at]) continue;
      bool may = false;
      for (const Span& span : written)
        may |= span.written && span.region == region && span.begin <= __int128(at) && __int128(at) < span.end;
      MUST(may, "%s changed byte %zu of region %d", name, at, region);
    }
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kHead) return 0;
  ptl_engine* engine = engine_of(data[0] % 3);
  MUST(engine, "an engine opens");
  int64_t regions[ptl::kRegions];
  for (int region = 0; region < ptl::kRegions; region++) {
    uint32_t bytes;
    memcpy(&bytes, data + 4 + 4 * region, 4);
    regions[region] = std::min(bytes, kMostBytes);
    engine->memory[region].reset();
    engine->regions[region] = {reinterpret_cast<char*>(uintptr_t(region + 1) << 40), regions[region]}; // the check reads none of it
  }
  int64_t records = int64_t(std::min((size - kHead) / kRecord, kMostRecords));
  std::vector<int64_t> tape(size_t(records) * 32); // a block of its own: a record read past the end is seen
  if (records) memcpy(tape.data(), data + kHead, size_t(records) * kRecord);
  if (ptl_check(engine, tape.data(), records)) {
    long long refused = -1;
    MUST(sscanf(ptl_error(engine), "record %lld ", &refused) == 1 && refused < records, "%s", ptl_error(engine));
    MUST(ptl_replay(engine, tape.data() + 32 * refused, 1), "record %lld: refused by check, taken by replay", refused);
    return 0;
  }
  int64_t needed[ptl::kRegions] = {};
  for (int64_t i = 0; i < records; i++)
    for (const Span& span : spans(tape.data() + 32 * i)) {
      MUST(span.region < ptl::kRegions && span.end <= regions[span.region], "record %d: an operand lies outside", int(i));
      needed[span.region] = std::max(needed[span.region], int64_t(span.end));
    }
  provide(engine, needed, data[1]); // no byte more, so that one past an operand is past its region
  for (int64_t i = 0; i < records; i++) {
    const int64_t* record = tape.data() + 32 * i;
    std::vector<Span> found = spans(record);
    if (work(record) > double(kMostWork)) continue;
    std::vector<std::string> before;
    for (const ptl::Region& region : engine->regions) before.emplace_back(region.memory, size_t(region.bytes));
    if (ptl_replay(engine, record, 1)) MUST(!strncmp(ptl_error(engine), "record 0 ", 9), "%s", ptl_error(engine));
    unchanged_but(found, before, engine, kRows[record[0]].name);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

// Words rather than bytes: a size, an offset or a region is moved to a neighbour, a limit, or another word of the tape.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  static const int64_t kNumbers[] = {0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257, 4096, 4097, 16383, 16384, 16385, 1 << 17, -1, -4,
                                     1LL << 31, 1LL << 32, (1LL << 40) - 1, 1LL << 40, 1LL << 55, (1LL << 56) - 4, 1LL << 62, INT64_MAX, INT64_MIN};
  std::minstd_rand random(seed);
  auto below = [&](size_t n) { return size_t(random()) % n; };
  if (size < kHead + kRecord || !below(8)) return LLVMFuzzerMutate(data, size, most);
  size_t records = (size - kHead) / kRecord;
  for (size_t changes = 1 + below(3); changes; changes--) {
    uint8_t* record = data + kHead + kRecord * below(records);
    const int64_t kernel = *reinterpret_cast<int64_t*>(record);
    const bool known = kernel >= 0 && kernel < int64_t(sizeof kRows / sizeof kRows[0]);
    auto word = [&](size_t at) { return record + 8 * at; };
    auto read = [](const uint8_t* at) { int64_t value; memcpy(&value, at, 8); return value; };
    auto write = [](uint8_t* at, int64_t value) { memcpy(at, &value, 8); };
    const int64_t number = kNumbers[below(sizeof kNumbers / sizeof kNumbers[0])];
    switch (below(10)) {
    case 0: case 1: case 2: { // a size
      uint8_t* at = word(1 + below(known ? strlen(kRows[kernel].letters) : 8));
      write(at, below(2) ? number : int64_t(uint64_t(read(at)) + below(5) - 2));
      break;
    }
    case 3: write(word(9 + below(6)), below(2) ? number : int64_t(below(2))); break;
    case 4: case 5: { // an offset, by a little or to a limit
      uint8_t* at = word(16 + below(8));
      uint64_t old = uint64_t(read(at)), moved = below(2) ? old + 4 * (below(9) - 4) : (old & (255ull << 56)) | (uint64_t(number) & ((1ull << 56) - 1));
      write(at, int64_t(moved));
      break;
    }
    case 6: { // an operand onto another one's place, or into another region
      uint8_t *at = word(16 + below(8)), *other = word(16 + below(8));
      write(at, below(2) ? read(other) : int64_t((uint64_t(read(at)) & ((1ull << 56) - 1)) | uint64_t(below(10)) << 56));
      break;
    }
    case 7: write(record, int64_t(below(sizeof kRows / sizeof kRows[0] + 1))); break;
    case 8: { // a region's size
      uint32_t bytes = uint32_t(below(3) ? below(kUsualBytes) : number);
      memcpy(data + 4 + 4 * below(9), &bytes, 4);
      break;
    }
    default: data[below(2)] = uint8_t(random()); break;
    }
  }
  if (below(2)) { // regions that hold what the records now say
    for (size_t i = 0; i < records; i++) {
      int64_t record[32];
      memcpy(record, data + kHead + kRecord * i, kRecord);
      if (record[0] < 0 || record[0] >= int64_t(sizeof kRows / sizeof kRows[0])) continue;
      for (const Span& span : spans(record))
        if (span.region < ptl::kRegions && span.end > 0 && span.end <= kMostBytes) {
          uint32_t bytes;
          memcpy(&bytes, data + 4 + 4 * span.region, 4);
          bytes = std::max(bytes, uint32_t(span.end));
          memcpy(data + 4 + 4 * span.region, &bytes, 4);
        }
    }
  }
  return size;
}

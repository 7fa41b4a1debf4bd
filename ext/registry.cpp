#include "registry.h"

#include <stdio.h>
#include <string.h>

#include "kernel_list.h"
#include "run.h"

namespace ptl {
namespace {

struct Operand {
  char name[16];
  bool written;
  char extent[8];
  unsigned over; // bit i: it may take the very place of operand i, which the kernel reads there before it writes
};

struct Spec {
  const char* name;
  const char* letters;
  const char* parameters;
  Operand operands[kMostOperands];
  int operand_count;
};

constexpr int64_t kMostSize = int64_t(1) << 40;
constexpr int64_t kMostNormalised = kSharedScratchBytes / 8; // channels with room for one partial sum

#define PTL_ONE(NAME, LETTERS, PARAMETERS, OPERANDS) +1
constexpr int kCount = 0 PTL_KERNELS(PTL_ONE);
#undef PTL_ONE
enum Id {
#define PTL_ID(NAME, LETTERS, PARAMETERS, OPERANDS) id_##NAME,
  PTL_KERNELS(PTL_ID)
#undef PTL_ID
};

struct Registry {
  Spec specs[kCount];

  void add(int id, const char* name, const char* letters, const char* parameters, const char* operands) {
    Spec& s = specs[id];
    s = Spec{name, letters, parameters, {}, 0};
    while (*operands) {
      Operand& o = s.operands[s.operand_count++];
      int n = 0;
      while (*operands != '<' && *operands != '>') o.name[n++] = *operands++;
      o.written = *operands++ == '>';
      for (n = 0; *operands && *operands != ' ' && *operands != '=';) o.extent[n++] = *operands++;
      while (*operands == '=') {
        const char* end = ++operands;
        while (*end && *end != ' ' && *end != '=') end++;
        for (int i = 0; i + 1 < s.operand_count; i++)
          if (!strncmp(s.operands[i].name, operands, size_t(end - operands)) && !s.operands[i].name[end - operands])
            o.over |= 1u << i;
        operands = end;
      }
      if (*operands) operands++;
    }
  }
  Registry() {
#define PTL_ADD(NAME, LETTERS, PARAMETERS, OPERANDS) add(id_##NAME, #NAME, LETTERS, PARAMETERS, OPERANDS);
    PTL_KERNELS(PTL_ADD)
#undef PTL_ADD
  }
};

const Registry& registry() {
  static const Registry made;
  return made;
}

int64_t size_of(const Spec& spec, const int64_t* record, char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  const char* at = strchr(spec.letters, letter);
  return record[1 + (at - spec.letters)];
}

struct Message {
  char* text;
  int room;
};
#define PTL_REFUSE(...) return snprintf(message.text, size_t(message.room), __VA_ARGS__), false

bool sizes_fit(const Spec& spec, const int64_t* record, Message message) {
  int letters = int(strlen(spec.letters)), parameters = int(strlen(spec.parameters));
  for (int i = 0; i < kMostLetters; i++) {
    int64_t size = record[1 + i];
    if (i >= letters && size)
      PTL_REFUSE("%s: size word %d is not used and must be 0, not %lld", spec.name, i, (long long)size);
    if (i < letters && (size < 1 || size > kMostSize))
      PTL_REFUSE("%s: size %c must be at least 1 and at most 2^40, not %lld", spec.name, spec.letters[i],
                 (long long)size);
  }
  for (int i = 0; i < kMostParameters; i++) {
    int64_t value = record[9 + i];
    bool fits = i >= parameters             ? value == 0
                : spec.parameters[i] == 'b' ? value == 0 || value == 1
                : spec.parameters[i] == 'f' ? value >= 0 && value <= int64_t(UINT32_MAX)
                                            : value >= INT32_MIN && value <= INT32_MAX;
    if (!fits) PTL_REFUSE("%s: parameter %d must not be %lld", spec.name, i, (long long)value);
  }
  if (record[15]) PTL_REFUSE("%s: word 15 must be 0, not %lld", spec.name, (long long)record[15]);
  for (int i = spec.operand_count; i < kMostOperands; i++)
    if (record[16 + i]) PTL_REFUSE("%s: operand word %d is not used and must be 0", spec.name, i);
  return true;
}

// What extents alone do not say.
bool rules_hold(int id, const Spec& spec, const int64_t* record, Message message) {
  auto size = [&](char letter) { return size_of(spec, record, letter); };
  const bool positions = id == id_embedding || id == id_embedding_backward || id == id_embedding_at;
  if ((positions || id == id_attention_cached) && size('P') < size('T'))
    PTL_REFUSE("%s: T = %lld positions exceed the table's P = %lld", spec.name, (long long)size('T'),
               (long long)size('P'));
  if ((id == id_attention || id == id_attention_backward || id == id_attention_cached) && size('D') > kMaxHeadWidth)
    PTL_REFUSE("%s: head width D = %lld exceeds %lld", spec.name, (long long)size('D'), (long long)kMaxHeadWidth);
  if (id == id_layernorm_backward && size('C') > kMostNormalised)
    PTL_REFUSE("%s: C = %lld exceeds %lld", spec.name, (long long)size('C'), (long long)kMostNormalised);
  if (id == id_lora || id == id_lora_backward_hidden || id == id_lora_backward_weight) {
    if (record[9] < 0 || record[9] > size('O') || size('J') > size('O') - record[9])
      PTL_REFUSE("%s: columns %lld to %lld do not lie in the O = %lld there are", spec.name, (long long)record[9],
                 (long long)(record[9] + size('J') - 1), (long long)size('O'));
    if (size('K') > kMostRank)
      PTL_REFUSE("%s: rank K = %lld exceeds %lld", spec.name, (long long)size('K'), (long long)kMostRank);
  }
  if (id == id_grad_norm && size('G') != (size('N') + 16383) / 16384)
    PTL_REFUSE("%s: G must be ceil(N / 16384) = %lld, not %lld", spec.name, (long long)((size('N') + 16383) / 16384),
               (long long)size('G'));
  if (id == id_adamw_bf16 && size('W') != (size('N') + 1) / 2)
    PTL_REFUSE("%s: W must be ceil(N / 2) = %lld, not %lld", spec.name, (long long)((size('N') + 1) / 2),
               (long long)size('W'));
  if (id == id_adamw_8bit && size('W') != (size('N') + 63) / 64 * 17)
    PTL_REFUSE("%s: W must be 17 ceil(N / 64) = %lld, not %lld", spec.name, (long long)((size('N') + 63) / 64 * 17),
               (long long)size('W'));
  return true;
}

bool operands_fit(const Spec& spec, const int64_t* record, const Region* regions, char** operands, Message message) {
  int64_t bytes[kMostOperands];
  for (int i = 0; i < spec.operand_count; i++) {
    const Operand& o = spec.operands[i];
    int64_t need = 4;
    for (const char* letter = o.extent; *letter; letter++)
      if (__builtin_mul_overflow(need, size_of(spec, record, *letter), &need))
        PTL_REFUSE("%s: %s has more bytes than an address can hold", spec.name, o.name);
    uint64_t word = uint64_t(record[16 + i]);
    int region = int(word >> 56);
    int64_t offset = int64_t(word & ((uint64_t(1) << 56) - 1));
    if (region >= kRegions) PTL_REFUSE("%s: %s names region %d of 0..%d", spec.name, o.name, region, kRegions - 1);
    if (offset % 4) PTL_REFUSE("%s: %s at byte %lld is not aligned to 4", spec.name, o.name, (long long)offset);
    if (offset > regions[region].bytes || need > regions[region].bytes - offset)
      PTL_REFUSE("%s: %s needs bytes %lld..%lld of region %d, which has %lld", spec.name, o.name, (long long)offset,
                 (long long)(offset + need), region, (long long)regions[region].bytes);
    operands[i] = regions[region].memory + offset;
    bytes[i] = need;
  }
  for (int i = 0; i < spec.operand_count; i++)
    for (int j = 0; spec.operands[i].written && j < spec.operand_count; j++)
      if (j != i && operands[i] < operands[j] + bytes[j] && operands[j] < operands[i] + bytes[i] &&
          !(spec.operands[i].over >> j & 1 && operands[i] == operands[j] && bytes[i] == bytes[j]))
        PTL_REFUSE("%s: %s is written and overlaps %s", spec.name, spec.operands[i].name, spec.operands[j].name);
  return true;
}

} // namespace

int kernel_count() { return kCount; }
const char* kernel_name(int id) { return id >= 0 && id < kCount ? registry().specs[id].name : ""; }

bool resolve(const int64_t* record, const Region* regions, char** operands, char* text, int room) {
  Message message{text, room};
  if (record[0] < 0 || record[0] >= kCount)
    PTL_REFUSE("kernel id %lld is not in 0..%d", (long long)record[0], kCount - 1);
  int id = int(record[0]);
  const Spec& spec = registry().specs[id];
  return sizes_fit(spec, record, message) && rules_hold(id, spec, record, message) &&
         operands_fit(spec, record, regions, operands, message);
}

} // namespace ptl

// The kernels' records: what each expects, and whether a record is harmless.
#pragma once
#include <stdint.h>

namespace ptl {

constexpr int kRegions = 9;
constexpr int kWords = 32;
constexpr int kMostLetters = 8, kMostParameters = 6, kMostOperands = 16;

struct Region {
  char* memory;
  int64_t bytes;
};

int kernel_count();
const char* kernel_name(int id);

// Checks one record against the regions and resolves its operands. On refusal writes the reason, without the record's
// number, into message (of `room` bytes) and returns false.
bool resolve(const int64_t* record, const Region* regions, char** operands, char* message, int room);

} // namespace ptl

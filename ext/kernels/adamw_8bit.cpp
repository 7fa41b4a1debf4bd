#include "../moments.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr int64_t kBlock = 64;               // elements with one scale
constexpr int64_t kBlockWords = 1 + kBlock / 4; // the scale, then the codes
constexpr int kVectors = int(kBlock) / PTL_W;
constexpr float kLeastScale = 0x1p-126f; // below it a block is all zeros
constexpr float kShareM = float(1.0 / 127), kShareV = float(1.0 / 255), kChance = 0x1p-16f;

typedef int8_t vs __attribute__((vector_size(PTL_W)));
typedef uint8_t vb __attribute__((vector_size(PTL_W)));

struct Block {
  vf x[kVectors];
};
struct Chances {
  vu x[kVectors];
};

PTL_INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7fffffff); }

PTL_INLINE float scale_of(const int32_t* block) {
  float scale;
  memcpy(&scale, block, 4);
  return scale;
}

// scale * c |c| / 127^2
PTL_INLINE vf decoded_m(const int32_t* block, int q) {
  vs codes;
  memcpy(&codes, reinterpret_cast<const char*>(block + 1) + q * W, W);
  vf part = __builtin_convertvector(__builtin_convertvector(codes, vi), vf) * loaded(kShareM);
  return part * magnitude(part) * scale_of(block);
}

// scale * (c / 255)^4
PTL_INLINE vf decoded_v(const int32_t* block, int q) {
  vb codes;
  memcpy(&codes, reinterpret_cast<const char*>(block + 1) + q * W, W);
  vf part = __builtin_convertvector(__builtin_convertvector(codes, vi), vf) * loaded(kShareV);
  return (part * part) * (part * part) * scale_of(block);
}

// The block's largest magnitude, or 0.
PTL_INLINE float scale_for(const Block& values) {
  vf most = magnitude(values.x[0]);
  for (int q = 1; q < kVectors; q++) most = larger(most, magnitude(values.x[q]));
  float lanes[W], found = 0.0f;
  store(lanes, most);
  for (int j = 0; j < W; j++) found = lanes[j] > found ? lanes[j] : found;
  return found < kLeastScale ? 0.0f : found;
}

PTL_INLINE vi code_of(vf share, float most, vu chance) {
  return __builtin_convertvector(at_most(share * most + __builtin_convertvector((vi)chance, vf) * loaded(kChance), most),
                                 vi);
}

PTL_INLINE void encode_m(int32_t* block, const Block& values, const Chances& drawn) {
  const float scale = scale_for(values), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  memcpy(block, &scale, 4);
  for (int q = 0; q < kVectors; q++) {
    vf x = values.x[q];
    vi code = code_of(square_root(magnitude(x) * inverse), 127.0f, drawn.x[q] & 0xffffu);
    vi sign = (vi)x >> 31;
    vb codes = __builtin_convertvector((code ^ sign) - sign, vb);
    memcpy(reinterpret_cast<char*>(block + 1) + q * W, &codes, W);
  }
}

PTL_INLINE void encode_v(int32_t* block, const Block& values, const Chances& drawn) {
  const float scale = scale_for(values), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
  memcpy(block, &scale, 4);
  for (int q = 0; q < kVectors; q++) {
    vf x = values.x[q];
    vi code = code_of(square_root(square_root(x * inverse)), 255.0f, drawn.x[q] >> 16);
    code |= (code == 0) & (x > vf{}) & (scale > 0.0f ? 1 : 0); // never 0 where v is not
    vb codes = __builtin_convertvector(code, vb);
    memcpy(reinterpret_cast<char*>(block + 1) + q * W, &codes, W);
  }
}

} // namespace

// adamw with moments in 8 bits, a scale for every 64 elements (see ops/adamw_8bit.py). Elements past N count as zeros.
void adamw_8bit(Run& run, int64_t N, int64_t W, int32_t decayed, const float* grad, const float* norm,
                const float* recipe, float* param, int32_t* m, int32_t* v) {
  const Step step = Step::of(norm, recipe, decayed);
  if (!step.goes) return;
  parallel_pieces(run, W / kBlockWords, 256, [=](int64_t begin, int64_t end, float*) {
    constexpr int64_t wide = PTL_W;
    for (int64_t b = begin; b < end; b++) {
      int32_t *block_m = m + b * kBlockWords, *block_v = v + b * kBlockWords;
      Block first, second;
      Chances drawn;
      for (int q = 0; q < kVectors; q++) {
        int64_t at = b * kBlock + q * wide, n = N - at < wide ? N - at : wide;
        drawn.x[q] = step.chances(at);
        if (n <= 0) {
          first.x[q] = second.x[q] = vf{};
          continue;
        }
        vf g = load(grad + at, n) * step.scale;
        vf new_m = step.moved_m(decoded_m(block_m, q), g), new_v = step.moved_v(decoded_v(block_v, q), g);
        store(param + at, step.moved_param(load(param + at, n), new_m, new_v), n);
        first.x[q] = keep(new_m, n), second.x[q] = keep(new_v, n);
      }
      encode_m(block_m, first, drawn);
      encode_v(block_v, second, drawn);
    }
  });
}
PTL_KERNEL(adamw_8bit)

} // namespace PTL_ISA
} // namespace ptl

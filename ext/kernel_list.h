// The registry: K(name, letters, parameters, operands). Position is the kernel id.
// Parameters: 'f' float, 'i' int, 'b' int that is 0 or 1. Operands: name, '<' read or '>' written, then its extent in
// 4-byte elements as a product of letters and digits; then, after '=', each operand whose very place it may take: the
// kernel reads every element there before it writes it, and none later.
#pragma once
#define PTL_KERNELS(K)                                                                                                 \
  K(fill, "N", "f", "x>N")                                                                                             \
  K(normal, "N", "fi", "seed<2 x>N")                                                                                   \
  K(embedding, "BTCVP", "", "tokens<BT wte<VC wpe<PC x>BTC")                                                           \
  K(embedding_backward, "BTCVP", "", "tokens<BT dx<BTC dwte>VC dwpe>PC")                                               \
  K(layernorm, "RC", "", "x<RC weight<C bias<C y>RC mean>R rstd>R")                                                    \
  K(layernorm_backward, "RC", "b", "dy<RC x<RC weight<C mean<R rstd<R dx>RC dweight>C dbias>C")                        \
  K(linear, "RIO", "", "x<RI weight<IO bias<O y>RO")                                                                   \
  K(linear_backward_input, "RIO", "", "dy<RO weight<IO dx>RI")                                                         \
  K(linear_backward_weight, "RIO", "", "x<RI dy<RO dweight>IO dbias>O")                                                \
  K(attention, "BTHD", "", "qkv<BT3HD y>BTHD lse>BHT")                                                                 \
  K(attention_backward, "BTHD", "", "qkv<BT3HD y<BTHD lse<BHT dy<BTHD delta>BHT dqkv>BT3HD")                           \
  K(gelu, "N", "", "x<N y>N=x")                                                                                        \
  K(gelu_backward, "N", "", "dy<N x<N dx>N=dy=x")                                                                      \
  K(add, "N", "", "a<N b<N y>N=a=b")                                                                                   \
  K(unembed, "RCV", "", "x<RC wte<VC logits>RV")                                                                       \
  K(unembed_backward_input, "RCV", "", "dlogits<RV wte<VC dx>RC")                                                      \
  K(unembed_backward_weight, "RCV", "", "x<RC dlogits<RV dwte>VC")                                                     \
  K(cross_entropy, "RV", "", "logits<RV targets<R losses>R lse>R loss>2")                                              \
  K(cross_entropy_backward, "RV", "", "logits<RV targets<R lse<R loss<2 dloss<1 dlogits>RV=logits")                    \
  K(grad_norm, "NG", "", "grad<N partials>G norm>1")                                                                   \
  K(adamw, "N", "b", "grad<N norm<1 recipe<8 param>N m>N v>N")                                                         \
  K(embedding_at, "BTCVP", "", "tokens<BT position<1 wte<VC wpe<PC x>BTC")                                             \
  K(attention_cached, "THDP", "", "qkv<T3HD position<1 keys>HDP values>PHD y>THD")                                     \
  K(lora, "RIOKJ", "i", "x<RI down<IK up<KJ strength<1 y>RO hidden>RK")                                                \
  K(lora_backward_hidden, "ROKJ", "i", "dy<RO up<KJ strength<1 dhidden>RK")                                            \
  K(lora_backward_input, "RIK", "b", "dhidden<RK down<IK dx>RI")                                                       \
  K(lora_backward_weight, "RIOKJ", "i", "x<RI hidden<RK dhidden<RK dy<RO strength<1 ddown>IK dup>KJ")                  \
  K(layernorm_backward_input, "RC", "b", "dy<RC x<RC weight<C mean<R rstd<R dx>RC")                                    \
  K(dpo, "ST", "", "losses<2ST reference<2S beta<1 margins>S loss>2")                                                  \
  K(dpo_backward, "ST", "", "margins<S beta<1 dloss<1 dlosses>2ST")                                                    \
  K(cross_entropy_backward_rows, "RV", "", "logits<RV targets<R lse<R dlosses<R dlogits>RV=logits")                    \
  K(blend, "N", "", "factor<N given<N y>N")                                                                            \
  K(gelu_erf, "N", "", "x<N y>N=x")                                                                                    \
  K(gelu_erf_backward, "N", "", "dy<N x<N dx>N=dy=x")                                                                  \
  K(adamw_bf16, "NW", "b", "grad<N norm<1 recipe<8 param>N m>W v>W")                                                   \
  K(adamw_8bit, "NW", "b", "grad<N norm<1 recipe<8 param>N m>W v>W")

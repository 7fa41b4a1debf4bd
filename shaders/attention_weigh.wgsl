// {SET}_ci += the thread's rows of {P} times {Y}: vectors own_vector + HOP·c of all of D.
{
//! if UNROLL_T == TX
    const t = 0u;
    {
//! else
    for (var t = 0u; t < TX; t += UNROLL_T) {
//! end
//! unroll u UNROLL_T
//! unroll q QUADS_C
        {
//! unroll i RT
            let p{i} = {P}[ty + {i}u * TY][{q}u * TX + t + {u}u];
//! end
//! unroll j 4
            {
//! unroll c QUADS_D
                let y{c} = {Y}[t + {u+(4*q+j)*TX}u][(own_vector + {c}u * HOP) ^ ((t + {u+(4*q+j)*TX}u) & TURN)];
//! unroll i RT
                {SET}_{c}{i} = fma(vec4f(p{i}.{xyzw[j]}), y{c}, {SET}_{c}{i});
//! end
//! end
            }
//! end
        }
//! end
//! end
    }
}

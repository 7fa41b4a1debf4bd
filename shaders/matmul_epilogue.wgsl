// What becomes of a finished sum of linear, by EPILOGUE: 0 nothing, 1 gelu (other: gelu(y), written beside y), 2 residual add
// (other is read and added), 3 gelu's gradient (other: what went into gelu; dx = dy·wᵀ times the slope there).
alias Element = ElementSum;
//! if EPILOGUE == 1 || EPILOGUE == 3
//! include gelu_tanh
//! end
//! if EPILOGUE == 1
fn gelu(x: ElementSum) -> ElementSum {
    return 0.5 * x * (1.0 + inner_tanh(x));
}
//! end
//! if EPILOGUE == 3
fn gelu_slope(x: ElementSum) -> ElementSum {
    let t = inner_tanh(x);
    // 1 - t² is exactly 0 where |x| is large, so the bound only keeps x³ finite.
    let bounded = clamp(x, ElementSum(-1e6), ElementSum(1e6));
    return 0.5 * (1.0 + t) + 0.5 * bounded * (1.0 - t * t) * (ROOT * (1.0 + 3.0 * CUBIC * bounded * bounded));
}
//! end

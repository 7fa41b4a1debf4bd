"""The engines behind one protocol: reference (NumPy float64), cpu (C++ natively or as WebAssembly), and how one is chosen."""

"""Tuning: a trained model learns to answer (sft), to prefer (dpo), and shows what it forgets of its first text."""

"""Measures amux against its floors: python -m bench [NAME…]."""

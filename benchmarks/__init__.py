"""Side-by-side runs against other libraries; results are ratios."""

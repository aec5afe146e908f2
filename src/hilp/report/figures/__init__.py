"""Figures: plain arrays in, a matplotlib Figure out. No pyplot and no global style, so any thread may draw.

A wrong argument is the caller's bug and raises ValueError.
"""

from hilp.report.figures.charts import bars, curve_grid, curves, scatter_distance, success_by_depth, success_by_error
from hilp.report.figures.maps import choose_flatten, distance_fields, earnings, earnings_grid, latent_map, trajectories
from hilp.report.figures.sheets import contact_sheet, film_strips, save_data_picture, way
from hilp.report.figures.style import png_data_uri, save

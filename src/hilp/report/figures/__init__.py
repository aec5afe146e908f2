"""Figures: plain arrays in, a matplotlib Figure out. No pyplot and no global style, so any thread may draw.

A wrong argument is the caller's bug and raises ValueError.
"""

from hilp.report.figures.charts import bars as bars
from hilp.report.figures.charts import curve_grid as curve_grid
from hilp.report.figures.charts import curves as curves
from hilp.report.figures.charts import scatter_distance as scatter_distance
from hilp.report.figures.charts import success_by_depth as success_by_depth
from hilp.report.figures.charts import success_by_error as success_by_error
from hilp.report.figures.latents import Flatten as Flatten
from hilp.report.figures.latents import choose_flatten as choose_flatten
from hilp.report.figures.latents import latent_map as latent_map
from hilp.report.figures.maps import Plan as Plan
from hilp.report.figures.maps import distance_field as distance_field
from hilp.report.figures.maps import distance_fields as distance_fields
from hilp.report.figures.maps import earnings as earnings
from hilp.report.figures.maps import earnings_grid as earnings_grid
from hilp.report.figures.maps import trajectories as trajectories
from hilp.report.figures.maps import trajectory_grid as trajectory_grid
from hilp.report.figures.sheets import contact_sheet as contact_sheet
from hilp.report.figures.sheets import film_strips as film_strips
from hilp.report.figures.style import BLUE as BLUE
from hilp.report.figures.style import INK as INK
from hilp.report.figures.style import LINE as LINE
from hilp.report.figures.style import PALETTE as PALETTE
from hilp.report.figures.style import SMALL_SIZE as SMALL_SIZE
from hilp.report.figures.style import SOFT as SOFT
from hilp.report.figures.style import TITLE_SIZE as TITLE_SIZE
from hilp.report.figures.style import png_data_uri as png_data_uri
from hilp.report.figures.style import save as save

"""The objects of a bundle without Helm: what the chart renders, and what Argo CD runs beside them."""

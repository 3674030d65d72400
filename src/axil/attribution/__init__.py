"""Attribution: which number belongs to an explained row and a training row, and what a verified model can answer."""

from axil.attribution.capabilities import Capabilities, Kind, Location

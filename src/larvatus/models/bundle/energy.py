"""Energy and CO₂ of training, estimated from what the hardware draws, how long it ran, and what a kWh emits.

    kWh = watts × devices × seconds / 3,600,000 × overhead
    kg  = kWh × grams per kWh / 1,000

It is an estimate: devices are taken to draw all that they are built for (their TDP), memory and disks count for nothing
but in `overhead` (the PUE of a data centre), and the building of the hardware for nothing at all. What is not known is
taken from `ANY_GPU` and `ANY_CORE` (Lannelongue et al. 2021, Green Algorithms) and `WORLD`; whoever knows better says
so: larvatus card DIR --watts 310 --intensity 28.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from larvatus.core.ranges import Range, whole
from larvatus.core.settings import Settings
from larvatus.models.bundle.claims import Claim, make_claim

WORLD = 475.0
"""Grams of CO₂ equivalent of a kWh: mean of the world (IEA, Global Energy & CO₂ Status Report 2019)."""
ANY_GPU, ANY_CORE = 200.0, 12.0
"""Watts of a GPU and of a core of a CPU that is not known."""
TDP: Mapping[str, float] = {
    "B200": 1000,
    "H200": 700,
    "H100 PCIe": 350,
    "H100": 700,
    "A100-PCIE": 250,
    "A100 80GB PCIe": 300,
    "A100": 400,
    "V100-PCIE": 250,
    "V100": 300,
    "L40S": 350,
    "L40": 300,
    "L4": 72,
    "T4": 70,
    "A10G": 300,
    "A10": 150,
    "A6000": 300,
    "RTX 5090": 575,
    "RTX 4090": 450,
    "RTX 3090": 350,
}
"""Watts that a GPU is built for, by a part of its name; the first that fits."""
FORMULA = "watts × devices × seconds / 3,600,000 × overhead"
CO2 = f"{FORMULA} × grams per kWh / 1,000"

WATTS = Range(0, 1e6, above=True)
INTENSITY = Range(0, 1e5)


class PowerDraw(Settings):
    """What trained, and for how long."""

    watts: Annotated[float, WATTS]
    """Of one device."""
    devices: Annotated[int, whole(1, 10**6)] = 1
    seconds: Annotated[float, Range(0, 1e12)]
    overhead: Annotated[float, Range(1, 100)] = 1.0
    intensity: Annotated[float, INTENSITY] = WORLD
    """Grams of CO₂ equivalent of a kWh."""
    source: str = ""
    """Where the watts come from, in words."""

    @property
    def kwh(self) -> float:
        return self.watts * self.devices * self.seconds / 3_600_000 * self.overhead

    @property
    def kg(self) -> float:
        """Of CO₂ equivalent."""
        return self.kwh * self.intensity / 1_000


def device_power(device: str, *, threads: int) -> tuple[float, str]:
    """Watts of a device, and where they come from: the GPU of this name, or the cores of a CPU (an empty name)."""
    if not device:
        return ANY_CORE * threads, f"CPU cores in use ({threads}), {ANY_CORE:g} W each"
    for name, watts in TDP.items():
        if name.lower() in device.lower():
            return watts, f"TDP of {name}"
    return ANY_GPU, "a GPU that is not in the table"


def energy_claims(draw: PowerDraw, **known: str) -> tuple[Claim, Claim]:
    """The two estimates; all that they are worked out from is in their settings."""
    settings = {name: getattr(draw, name) for name in draw.__struct_fields__}
    return (
        make_claim("energy, kWh", draw.kwh, command="energy", settings=settings, estimate=FORMULA, **known),
        make_claim("CO₂ equivalent, kg", draw.kg, command="energy", settings=settings, estimate=CO2, **known),
    )

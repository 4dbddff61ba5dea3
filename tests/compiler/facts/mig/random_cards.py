"""Cards that nobody has built: random geometries for property tests."""

from hypothesis import strategies as st

from gpushare.facts.catalog.cards import Engines, Geometry, MigProfile, Placement


def _profiles(units: int, number: int):
    place = st.integers(0, units - 1).flatmap(
        lambda start: st.integers(1, units - start).map(lambda size: Placement(start=start, size=size))
    )
    amounts = st.none() | st.integers(0, 3)
    return st.builds(
        MigProfile,
        name=st.sampled_from(["", "+gfx", "+me", "-me"]).map(lambda attribute: f"1g.{number}gb{attribute}"),
        nvml_enum=st.just(0),
        profile_id=st.just(number),
        compute_slices=st.integers(1, units),
        memory_mib=st.none(),
        max_count=st.integers(0, 4),
        placements=st.lists(place, max_size=4, unique=True).map(tuple),
        engines=st.builds(Engines, copy=amounts, decoders=amounts, encoders=amounts, jpeg=amounts, ofa=amounts),
    )


@st.composite
def geometries(draw):
    units = draw(st.integers(1, 7))
    number = draw(st.integers(0, 4))
    totals = st.none() | st.integers(0, 5)
    return Geometry(
        units=units,
        max_instances=draw(st.integers(0, 5)),
        profiles=tuple(draw(_profiles(units, index)) for index in range(number)),
        engine_totals=draw(st.builds(Engines, decoders=totals, encoders=totals, jpeg=totals, ofa=totals)),
        max_compute_instances=draw(st.none() | st.integers(0, 3)),
        max_gfx_instances=draw(st.none() | st.integers(0, 3)),
    )

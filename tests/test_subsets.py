"""How fast cases are chosen: by their names alone, about as many as asked for."""

from tests import places
from tests.subsets import chosen, mostly_slow, name_of

CASES = [("library", f"model {number}") for number in range(600)]


def fast(cases, n_shares, share=0):
    """Return the cases that `mostly_slow` does not mark."""
    parameters = mostly_slow(n_shares, cases, share)
    return [parameter.values for parameter in parameters if not parameter.marks]


def test_a_new_case_changes_nothing_for_the_others():
    more_cases = [("library", "new"), *CASES, ("library", "newer")]
    assert [case for case in fast(more_cases, 3) if case in CASES] == fast(CASES, 3)


def test_shares_divide_the_cases_into_parts_of_about_the_same_size():
    shares = [fast(CASES, 3, share) for share in range(3)]
    assert sorted(case for share in shares for case in share) == sorted(CASES)
    assert all(150 < len(share) < 250 for share in shares)
    assert shares[0] == chosen(3, CASES)


def test_shares_by_different_numbers_are_independent():
    half_of_a_third = fast(fast(CASES, 3), 2)
    assert 70 < len(half_of_a_third) < 130


def test_large_cases_are_slow_in_every_share():
    parameters = mostly_slow(2, CASES, is_slow=lambda case: case == CASES[0])
    assert parameters[0].marks


def test_the_name_of_a_case_is_made_of_its_values():
    assert name_of("weighted") == "weighted"
    assert name_of((places, "weighted", 3)) == "tests.places-weighted-3"

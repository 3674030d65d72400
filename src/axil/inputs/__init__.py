"""The gates: tables, arrays, labels, settings and paths that people pass are checked here."""

from axil.inputs.categories import category_columns, distinct_values
from axil.inputs.columns import (
    chosen_columns,
    column_names,
    feature_columns,
    is_single,
    row_index,
    row_keys,
    row_values,
    without_hidden,
)
from axil.inputs.distances import FIRST, as_points, interval_around, just_before
from axil.inputs.labels import (
    as_labels,
    as_list,
    as_mask,
    as_positions,
    asked_labels,
    group_codes,
    joined,
    label_codes,
    named_rows,
    one_hot,
    other_order,
    places_among,
    position_of,
    positions,
    refuse_other_order,
)
from axil.inputs.numbers import (
    MOST_THREADS,
    as_array,
    as_bytes,
    as_choice,
    as_count,
    as_flag,
    as_in_bag,
    as_number,
    as_numbers,
    as_offsets,
    as_share,
    as_shares,
    as_sizes,
    as_table,
    as_vector,
    as_weights,
    is_sparse,
    is_whole,
    on_host,
    weights_of_some,
)
from axil.inputs.row_groups import as_row_groups, weights_of_rows
from axil.inputs.tables import (
    ModelColumns,
    as_directory,
    as_features,
    as_file,
    as_frame,
    as_path,
    as_targets,
    backend_of,
    coding_of,
    in_order,
    row_labels,
    stack_rows,
    take_rows,
)
from axil.inputs.times import as_bounds, as_signed_times, signed_times_of

// SPDX-License-Identifier: Apache-2.0
// A matrix whose rows are q | k | v of a token, as the operators of attention take it.
#pragma once

#include "vocabpipe/attention_shape.hpp"

namespace vocabpipe::kernels::test {

/// Columns of q; `Owner` has a view().
template <typename Owner>
[[nodiscard]] auto queries_of(Owner& qkv, const AttentionShape& shape) {
    return qkv.view().column_range(0, shape.query_columns());
}
/// Columns of k and v.
template <typename Owner>
[[nodiscard]] auto keys_values_of(Owner& qkv, const AttentionShape& shape) {
    return qkv.view().column_range(shape.query_columns(), shape.key_value_columns());
}

}  // namespace vocabpipe::kernels::test

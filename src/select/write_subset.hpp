// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/subset_file.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <string>

namespace vocabpipe {

/// Writes the samples that are selected or open: each rank its own, a block at a time. `info.count`
/// must be their number. What ranks write that do not see the file of rank 0 waits in the folder of
/// the context's blocks. Collective.
void write_subset(const SelectContext& context, const SelectionState& state,
                  const std::string& path, const SubsetInfo& info);

}  // namespace vocabpipe

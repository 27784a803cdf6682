// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/step_memory.hpp"
#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Makes the Transfers of the communications of a rank's program.
class TransferMaker {
public:
    /// `memory` must outlive this.
    explicit TransferMaker(const StepMemory& memory) : memory_(memory) {}
    /// Its spans are valid until the next call and as long as the program.
    [[nodiscard]] Transfer make(const Program& program, const Action& action);
    /// A transfer of some rows of a message or broadcast.
    [[nodiscard]] Transfer make(const Program& program, const Action& action, RowRange rows);

private:
    void cut_blocks(const Group& group, const Reduction& reduction, int64_t row_bytes);

    const StepMemory& memory_;
    std::vector<int64_t> block_begin_, block_end_;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// Whether a run that is told to end can save before it is killed, and else what to export: said
/// after its second step, or by the first save that takes too long.
class GraceNote {
public:
    /// `grace_seconds`: from mpirun's first signal to SIGKILL; none: nobody kills. `fixed`: as Open
    /// MPI 5 has it; else a variable extends it.
    explicit GraceNote(std::optional<double> grace_seconds, bool fixed = false)
        : grace_seconds_(grace_seconds), fixed_(fixed) {}

    /// Before a save has been seen: until a rank looks up, its longest pass goes by, and then all
    /// ranks write `bytes`. The lines; empty: it can, or has been said.
    [[nodiscard]] std::string of_step(double longest_pass_seconds, uint64_t bytes);
    /// After a save.
    [[nodiscard]] std::string of_save(double longest_pass_seconds, uint64_t bytes, double seconds);

private:
    [[nodiscard]] std::string say(const std::string& what, double seconds);

    std::optional<double> grace_seconds_;
    bool fixed_;
    bool said_ = false;
};

}  // namespace vocabpipe

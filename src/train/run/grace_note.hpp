// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// A note for runs whose launcher may kill them before they can save, with the remedy: logged after
/// the second step, or after the first save that takes too long.
class GraceNote {
public:
    /// `grace_seconds`: from mpirun's first signal to SIGKILL; none: no kill. `fixed`: as in Open
    /// MPI 5; otherwise an environment variable can extend it.
    explicit GraceNote(std::optional<double> grace_seconds, bool fixed = false)
        : grace_seconds_(grace_seconds), fixed_(fixed) {}

    /// The note before any save was measured: ending takes the longest pass until a rank notices,
    /// and writing `bytes` by all ranks. Empty if that is short enough, or was said.
    [[nodiscard]] std::string of_step(double longest_pass_seconds, uint64_t bytes);
    /// The note after a save.
    [[nodiscard]] std::string of_save(double longest_pass_seconds, uint64_t bytes, double seconds);

private:
    [[nodiscard]] std::string say(const std::string& what, double seconds);

    std::optional<double> grace_seconds_;
    bool fixed_;
    bool said_ = false;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule.hpp"

#include <optional>
#include <string>

namespace vocabpipe {

/// Why a schedule cannot run. `index` is the position in the rank's list; -1 if a pass is missing
/// or the fault is of the whole schedule (rank -1).
struct Violation {
    int rank = -1;       ///< -1: of the whole schedule
    int index = -1;      ///< in the rank's list; -1: of the whole list
    std::string pass;    ///< as printed by to_string(Pass); empty: none
    std::string reason;  ///< one line
    /// One line for people.
    [[nodiscard]] std::string message() const;
};

/// A schedule that cannot run.
class ScheduleError : public UsageError {
public:
    /// With the violation's message.
    explicit ScheduleError(Violation violation)
        : UsageError(violation.message()), violation_(std::move(violation)) {}
    /// Where and why the schedule cannot run.
    [[nodiscard]] const Violation& violation() const noexcept { return violation_; }

private:
    Violation violation_;
};

/// The first violation, or none. A valid schedule has, for every microbatch: one F and one backward
/// (B, or I and W) per stage, on the stage's rank; one E and G (S and T) on every rank that holds
/// input (output) rows and nowhere else; F before its backward, I before W, S before T; at most one
/// R per stage, between its F and its B or I, and none without a backward; and its lists finish
/// when each rank runs its passes in order and waits for inputs:
///   E(k,j) of all k -> F(0,j) -> ... -> F(n-1,j) -> S(k,j) of all k -> T(k,j),
///   S(k,j) of all k (one barrier) or T(k,j) of all k (otherwise) -> B(n-1,j) -> ... -> B(0,j) ->
///   G(k,j).
/// Stages before Schedule::first_backward have no backward, and without
/// Schedule::embedding_gradient no rank has a G.
/// An overlapped pair (Pass::with_next) is one F and one B or I of another microbatch, and waits
/// for the inputs of both.
[[nodiscard]] std::optional<Violation> find_violation(const Schedule& schedule);

/// Throws ScheduleError with rank, index, pass and reason.
void validate(const Schedule& schedule);

}  // namespace vocabpipe

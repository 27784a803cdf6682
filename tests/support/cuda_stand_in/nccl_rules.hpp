// SPDX-License-Identifier: Apache-2.0
// What the stand-in NCCL does with a program that breaks a rule, and how it behaves otherwise.
//
// What NCCL itself refuses (a duplicate device, a communicator that is not ready, a wrong argument)
// is returned as its error code. What NCCL answers with a hang, wrong bytes, freed memory or an
// order that depends on luck is a broken rule: the text goes to stderr and the process ends, so
// that no test can overlook it.
#pragma once

#include <string>
#include <vector>

namespace cuda_stand_in::nccl {

/// Collects broken rules for as long as it lives, for tests that break them on purpose. The
/// communicators concerned then fail with ncclInternalError instead of hanging. One at a time.
class ExpectBrokenRules {
public:
    ExpectBrokenRules();
    ~ExpectBrokenRules();
    ExpectBrokenRules(const ExpectBrokenRules&) = delete;
    ExpectBrokenRules& operator=(const ExpectBrokenRules&) = delete;
    /// "rule: who did what against whom", in the order found.
    [[nodiscard]] std::vector<std::string> texts() const;
};

void break_rule(const std::string& text);

/// For as long as it lives, an abort breaks a rule when what was enqueued on its communicators has
/// not ended after so many seconds. Otherwise 20: more than any machine takes that is merely busy.
class AbortPatience {
public:
    explicit AbortPatience(double seconds);
    ~AbortPatience();
    AbortPatience(const AbortPatience&) = delete;
    AbortPatience& operator=(const AbortPatience&) = delete;

private:
    double before_;
};

/// Communicators of the device whose last launch is not on its streams yet.
[[nodiscard]] int launches_in_progress(int device);

/// How often ncclCommGetAsyncError of a non-blocking communicator says ncclInProgress before it may
/// say ncclSuccess: 3 for an initialisation or the first use of a connection, 1 for any other call.
inline constexpr int kPollsToConnect = 3;
inline constexpr int kPollsToLaunch = 1;

}  // namespace cuda_stand_in::nccl

// SPDX-License-Identifier: Apache-2.0
// Two hosts on this machine: network namespaces with a name and an address each, joined by a cable
// that can be pulled.
#pragma once

#include "tests/faults/launch.hpp"

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// "alpha" and "beta", with one file system. Needs root, ip and unshare.
class TwoHosts {
public:
    static constexpr std::array<const char*, 2> kNames{"alpha", "beta"};

    TwoHosts();
    ~TwoHosts();  ///< ends what still runs on them
    TwoHosts(const TwoHosts&) = delete;
    TwoHosts& operator=(const TwoHosts&) = delete;

    /// Why there are none; empty: there are.
    [[nodiscard]] const std::string& missing() const { return missing_; }

    /// mpirun on alpha of as many train_gpt on both hosts, over TCP only. It takes a host that does
    /// not answer for three or four seconds as lost, as docs/errors.md advises.
    [[nodiscard]] Arguments under_mpirun(int ranks_per_host, const Arguments& arguments) const;

    /// `command` as somebody types it on a host.
    [[nodiscard]] Arguments on(size_t host, const Arguments& command) const;
    /// Each takes ssh without a password from the other, or the test fails. What that needs and
    /// this machine lacks; empty: nothing.
    [[nodiscard]] std::string serve_ssh() const;

    /// Waits until no process is left on either host; says which are.
    [[nodiscard]] std::vector<std::string> left_over(std::chrono::seconds limit) const;
    /// Bytes that alpha has sent to beta.
    [[nodiscard]] int64_t sent_bytes() const;

    /// Every process of a host ends at once; its kernel says so to the peers.
    void kill_host(size_t host) const;
    /// No packet arrives any more, and nobody is told.
    void pull_cable() const;

private:
    [[nodiscard]] std::string name_space(size_t host) const;
    [[nodiscard]] std::vector<pid_t> processes(size_t host) const;
    [[nodiscard]] std::vector<std::string> processes() const;
    void make();

    TempFolder folder_;
    std::string missing_;
};

}  // namespace vocabpipe::testing

// SPDX-License-Identifier: Apache-2.0
// Slurm's own daemons on two hosts of this machine.
#pragma once

#include "tests/faults/launch.hpp"
#include "tests/faults/two_hosts.hpp"

#include <chrono>
#include <string>

namespace vocabpipe::testing {

/// munged, slurmctld and two slurmd of Debian's packages. Each host is a node of 4 CPUs; jobs of
/// the partition "urgent" preempt those of "spare", the default. All of it ends with the object.
class SlurmCluster {
public:
    /// A failure of the test if they do not start although all that they need is there.
    void start();
    /// What they need and this machine lacks; empty: nothing.
    [[nodiscard]] const std::string& missing() const { return missing_; }

    /// What a command that somebody types on alpha prints; a failure of the test unless it succeeds
    /// within 30 s. `folder`: where it is typed.
    std::string type(const std::string& folder, const std::string& command) const;
    /// Submits what a line that begins with "sbatch" says; the number of the job.
    [[nodiscard]] std::string submit(const std::string& folder, const std::string& line) const;
    /// The value of a key of "scontrol show job".
    [[nodiscard]] std::string of_job(const std::string& job, const std::string& key) const;
    /// Waits until the key has the value; false, and a failure, if it does not get it in time.
    [[nodiscard]] bool wait_for(const std::string& job, const std::string& key,
                                const std::string& value, std::chrono::seconds limit) const;

private:
    [[nodiscard]] std::string configuration() const;
    void start_daemons() const;

    TempFolder folder_;
    TwoHosts hosts_;  // whose end is that of the daemons
    std::string missing_ = "not started";
};

}  // namespace vocabpipe::testing

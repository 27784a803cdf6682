// SPDX-License-Identifier: Apache-2.0
#include "tests/batch/slurm_cluster.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

namespace vocabpipe::testing {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kTyped{30};  // on a machine that others use as well

/// A version of Slurm that needs no control groups if nothing asks for them.
bool can_do_without_control_groups() {
    std::FILE* pipe = ::popen("/usr/sbin/slurmd -V", "r");  // "slurm-wlm 22.05.8"
    if (pipe == nullptr) return false;
    int major = 0;
    const int read = std::fscanf(pipe, "%*s %d", &major);
    ::pclose(pipe);
    return read == 1 && major >= 23;
}

}  // namespace

void SlurmCluster::start() {
    missing_ = hosts_.missing();
    for (const char* program : {"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd",
                                "/usr/bin/sbatch", "/usr/bin/scontrol"}) {
        if (!missing_.empty() || ::access(program, X_OK) == 0) continue;
        missing_ =
            std::string("no ") + program + "; examples/install_packages.sh --full installs it";
    }
    if (missing_.empty()) start_daemons();
}

std::string SlurmCluster::configuration() const {
    const std::string node = " CPUs=4 State=UNKNOWN\n";
    return "ClusterName=two_hosts\nSlurmctldHost=" + std::string(TwoHosts::kNames[0]) +
           "\nSlurmUser=root\nSlurmdUser=root\n"
           // A job that is requeued waits until what its nodes hold of it has expired.
           "AuthType=auth/munge\nAuthInfo=cred_expire=5,socket=" +
           (folder_ / "munge.socket") + "\nSlurmctldPidFile=" + (folder_ / "slurmctld.pid") +
           "\nSlurmctldLogFile=" + (folder_ / "slurmctld.log") +
           "\nSlurmdPidFile=" + (folder_ / "%n.pid") + "\nSlurmdLogFile=" + (folder_ / "%n.log") +
           "\nStateSaveLocation=" + (folder_ / "state") +
           "\nSlurmdSpoolDir=" + (folder_ / "spool-%n") +
           // The hosts have one file system, and PMIx wants a folder of the host.
           "\nTmpFS=" + (folder_ / "tmp-%n") +
           "\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
           "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n"
           "SchedulerParameters=batch_sched_delay=0\n"
           "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
           "SlurmdParameters=config_overrides\n"  // CPUs=4, whatever this machine has
           "NodeName=" +
           TwoHosts::kNames[0] + node + "NodeName=" + TwoHosts::kNames[1] + node +
           "PartitionName=spare Nodes=ALL Default=YES PriorityTier=1\n"
           "PartitionName=urgent Nodes=ALL PriorityTier=2\n";
}

void SlurmCluster::start_daemons() const {
    for (const char* folder : {"state", "spool-alpha", "spool-beta", "tmp-alpha", "tmp-beta"}) {
        std::filesystem::create_directory(folder_ / folder);
    }
    ::chmod((folder_ / "").c_str(), 0755);  // munged's socket must be open to everybody
    write_file(folder_ / "slurm.conf", configuration());
    write_file(folder_ / "cgroup.conf",
               std::string("CgroupPlugin=") +
                   (can_do_without_control_groups() ? "disabled" : "cgroup/v1") + "\n");
    write_file(folder_ / "munge.key", std::string(128, 'k'));
    ::chmod((folder_ / "munge.key").c_str(), 0600);
    const Arguments slurm = {"env", "SLURM_CONF=" + (folder_ / "slurm.conf")};
    const Arguments munged = {"/usr/sbin/munged",
                              "--force",
                              "--key-file=" + (folder_ / "munge.key"),
                              "--socket=" + (folder_ / "munge.socket"),
                              "--pid-file=" + (folder_ / "munge.pid"),
                              "--log-file=" + (folder_ / "munge.log"),
                              "--seed-file=" + (folder_ / "munge.seed")};
    for (const Arguments& daemon :
         {hosts_.on(0, munged), hosts_.on(0, slurm + Arguments{"/usr/sbin/slurmctld"}),
          hosts_.on(0, slurm + Arguments{"/usr/sbin/slurmd", "-N", TwoHosts::kNames[0]}),
          hosts_.on(1, slurm + Arguments{"/usr/sbin/slurmd", "-N", TwoHosts::kNames[1]})}) {
        Job job(folder_, daemon);
        ASSERT_EQ(job.wait(kTyped), 0) << daemon.back() << "\n" << job.error();
    }
    const auto deadline = Clock::now() + kTyped;
    while (type("/", "sinfo --noheader --format '%D %t' --partition spare || true") != "2 idle\n") {
        ASSERT_LT(Clock::now(), deadline) << "the nodes of Slurm are not idle";
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
}

std::string SlurmCluster::type(const std::string& folder, const std::string& command) const {
    const TempFolder output;
    Job job(output, hosts_.on(0, {"env", "-C", folder, "SLURM_CONF=" + (folder_ / "slurm.conf"),
                                  "bash", "-c", command}));
    EXPECT_EQ(job.wait(kTyped), 0) << command << "\n" << job.error();
    return job.output();
}

std::string SlurmCluster::submit(const std::string& folder, const std::string& line) const {
    const std::string words = "Submitted batch job ";
    const std::string said = type(folder, line);
    EXPECT_TRUE(said.starts_with(words)) << said;
    return said.substr(words.size(), said.find('\n') - words.size());
}

std::string SlurmCluster::of_job(const std::string& job, const std::string& key) const {
    const std::string all = " " + type("/", "scontrol --oneliner show job " + job);
    const size_t at = all.find(" " + key + "=");
    if (at == std::string::npos) return "";
    const size_t value = at + key.size() + 2;
    return all.substr(value, all.find(' ', value) - value);
}

bool SlurmCluster::wait_for(const std::string& job, const std::string& key,
                            const std::string& value, std::chrono::seconds limit) const {
    const auto deadline = Clock::now() + limit;
    for (std::string now; (now = of_job(job, key)) != value;) {
        if (Clock::now() > deadline) {
            ADD_FAILURE() << "job " << job << ": " << key << " is " << now << ", not " << value;
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return true;
}

}  // namespace vocabpipe::testing

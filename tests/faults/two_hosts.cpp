// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/two_hosts.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <thread>

namespace vocabpipe::testing {

namespace {

// Addresses that are kept for documentation (RFC 5737); nobody outside of the namespaces has them.
constexpr std::array kAddresses{"198.51.100.1", "198.51.100.2"};
constexpr const char* kNetwork = "198.51.100.0/24";
constexpr const char* kCable = "cable";

struct Shell {
    int status = -1;
    std::string output;  ///< both streams
};

Shell shell(const std::string& command) {
    Shell result;
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return result;
    std::array<char, 256> part{};
    while (std::fgets(part.data(), part.size(), pipe) != nullptr) result.output += part.data();
    result.status = ::pclose(pipe);
    return result;
}

void write_script(const std::string& path, const std::string& text) {
    write_file(path, "#!/bin/sh\n" + text);
    ::chmod(path.c_str(), 0700);
}

}  // namespace

TwoHosts::TwoHosts() {
    if (::geteuid() != 0) {
        missing_ = "network namespaces need root";
        return;
    }
    make();
}

TwoHosts::~TwoHosts() {
    for (const size_t host : {0, 1}) {
        kill_host(host);
        (void)shell("ip netns del " + name_space(host));
    }
}

std::string TwoHosts::name_space(size_t host) const {
    return "vocabpipe-" + std::to_string(::getpid()) + "-" + kNames[host];
}

void TwoHosts::make() {
    const std::string a = name_space(0);
    const std::string b = name_space(1);
    std::string commands = "set -e; ip netns add " + a + "; ip netns add " + b + "; ip link add " +
                           kCable + " netns " + a + " type veth peer name " + kCable + " netns " +
                           b;
    std::string hosts = "127.0.0.1 localhost\n";
    for (const size_t host : {0, 1}) {
        const std::string in = "; ip -n " + name_space(host) + " ";
        commands += in + "addr add " + kAddresses[host] + "/24 dev " + kCable + in +
                    "link set lo up" + in + "link set " + kCable + " up";
        hosts += std::string(kAddresses[host]) + " " + kNames[host] + "\n";
    }
    write_file(folder_ / "hosts", hosts);
    // A command on a host, which has its own name and finds the other's address, and the keys of
    // ssh if there are some.
    write_script(folder_ / "as_host",
                 "set -e\nhostname \"$1\"\nmount --bind " + (folder_ / "hosts") +
                     " /etc/hosts\n[ ! -e " + (folder_ / "ssh_config") + " ] || mount --bind " +
                     (folder_ / "ssh_config") + " /etc/ssh/ssh_config\nshift\nexec \"$@\"\n");
    write_script(folder_ / "on_host", "name=$1; shift\nexec ip netns exec vocabpipe-" +
                                          std::to_string(::getpid()) +
                                          "-$name unshare --uts --mount " + (folder_ / "as_host") +
                                          " \"$name\" \"$@\"\n");
    // What Open MPI takes for ssh: a host and words for its shell. Like ssh it learns later than
    // the launcher that the host is gone.
    write_script(folder_ / "remote_shell",
                 "name=$1; shift\n" + (folder_ / "on_host") +
                     " \"$name\" sh -c \"$*\" || { code=$?; sleep 1; exit $code; }\n");
    for (const std::string& command :
         {commands, (folder_ / "on_host") + " " + kNames[1] + " true"}) {
        const Shell done = shell("(" + command + ")");
        if (done.status == 0) continue;
        missing_ = "two network namespaces cannot be made: " +
                   done.output.substr(0, done.output.find('\n'));
        return;
    }
}

Arguments TwoHosts::on(size_t host, const Arguments& command) const {
    return Arguments{folder_ / "on_host", kNames[host]} + command;
}

std::string TwoHosts::serve_ssh() const {
    for (const char* program : {"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"}) {
        if (::access(program, X_OK) != 0) {
            return std::string("no ") + program +
                   "; examples/install_packages.sh --full installs it";
        }
    }
    const std::string key = folder_ / "key";
    write_file(folder_ / "sshd_config", "HostKey " + key + "\nAuthorizedKeysFile " + key +
                                            ".pub\nStrictModes no\nPidFile none\n"
                                            "PasswordAuthentication no\nUsePAM no\n"
                                            "PermitRootLogin prohibit-password\n");
    // sshd asks for an empty folder in /run, which it gets for itself.
    write_script(folder_ / "serve",
                 "set -e\nmount -t tmpfs tmpfs /run\nmkdir -m 0755 /run/sshd\n"
                 "exec /usr/sbin/sshd -f " +
                     (folder_ / "sshd_config") + " -E " + (folder_ / "sshd.log") + "\n");
    std::string commands = "ssh-keygen -q -t ed25519 -N '' -f " + key;
    for (const char* name : kNames) {
        commands += " && " + (folder_ / "on_host") + " " + name + " " + (folder_ / "serve");
    }
    Shell done = shell(commands);
    if (done.status == 0) {
        write_file(folder_ / "ssh_config", "IdentityFile " + key +
                                               "\nStrictHostKeyChecking no\nUserKnownHostsFile "
                                               "/dev/null\nLogLevel ERROR\nBatchMode yes\n");
        done = shell((folder_ / "on_host") + " " + kNames[0] + " timeout 20 ssh " + kNames[1] +
                     " hostname");
        if (done.status == 0 && done.output == std::string(kNames[1]) + "\n") return "";
    }
    ADD_FAILURE() << "ssh does not reach the other host: " << done.output;
    return "";
}

Arguments TwoHosts::under_mpirun(int ranks_per_host, const Arguments& arguments) const {
    const std::string slots = ":" + std::to_string(ranks_per_host);
    return on(0, Arguments{VOCABPIPE_MPIRUN,
                           "--host",
                           kNames[0] + slots + "," + kNames[1] + slots,
                           "-np",
                           std::to_string(2 * ranks_per_host),
                           "--mca",
                           "plm_rsh_agent",
                           folder_ / "remote_shell",
                           "--mca",
                           "pml",
                           "ob1",
                           "--mca",
                           "btl",
                           "tcp,self",
                           "--mca",
                           "btl_tcp_if_include",
                           kNetwork,
                           "--mca",
                           "oob_tcp_if_include",
                           kNetwork,
                           "--mca",
                           "oob_tcp_keepalive_time",
                           "2",
                           "--mca",
                           "oob_tcp_keepalive_intvl",
                           "1",
                           "--mca",
                           "oob_tcp_keepalive_probes",
                           "2",
                           VOCABPIPE_TRAIN_GPT} +
                     arguments);
}

std::vector<pid_t> TwoHosts::processes(size_t host) const {
    std::vector<pid_t> pids;
    const Shell done = shell("ip netns pids " + name_space(host));
    if (done.status != 0) return pids;
    std::istringstream in(done.output);
    for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
    return pids;
}

std::vector<std::string> TwoHosts::processes() const {
    std::vector<std::string> all;
    for (const size_t host : {0, 1}) {
        for (const pid_t pid : processes(host)) {
            std::string command = read_file("/proc/" + std::to_string(pid) + "/cmdline");
            std::replace(command.begin(), command.end(), '\0', ' ');
            all.push_back(std::string(kNames[host]) + ": " + command);
        }
    }
    return all;
}

std::vector<std::string> TwoHosts::left_over(std::chrono::seconds limit) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    std::vector<std::string> left = processes();
    while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        left = processes();
    }
    return left;
}

int64_t TwoHosts::sent_bytes() const {
    const Shell done = shell("ip netns exec " + name_space(0) + " cat /sys/class/net/" + kCable +
                             "/statistics/tx_bytes");
    return std::atoll(done.output.c_str());
}

void TwoHosts::kill_host(size_t host) const {
    for (const pid_t pid : processes(host)) signal_process(pid, SIGKILL);
}

void TwoHosts::pull_cable() const {
    (void)shell("ip -n " + name_space(1) + " link set " + kCable + " down");
}

}  // namespace vocabpipe::testing

// SPDX-License-Identifier: Apache-2.0
// How fast the state of GPT-2 124M is written and read, against dd on the same disk, in turns.
//
//     bench_checkpoint --folder DIR [--ranks 2] [--rounds 6] [--rest 0]
//
// write   every rank's rows, checksums and fsync, until the step has its name; dd: as many bytes,
//         bs=8M conv=fsync
// read    every byte against its checksum, then every rank's rows into place; dd: of=/dev/null
//         bs=8M of the same files. Before each of them the files are dropped from the page cache
//         of this system (column cached: the share that stayed); caches of a host or disk below it
//         serve both sides.
// pause   time that a step waits for with --async-save: files made, rows copied; memcpy: the same
//         bytes by as many threads
//
// Sides take turns in going first. #wrong: tensors that ranks did not get back as they were saved.
#include "benchmarks/median.hpp"
#include "src/support/crc32c.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/save_checkpoint.hpp"
#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace vocabpipe;
using bench::median;
using Clock = std::chrono::steady_clock;

constexpr const char* kProgram = "bench_checkpoint";

struct Options {
    std::string folder;
    int rounds = 6;
    int rest = 0;  // seconds
    bool bf16 = false;
};

/// Seconds of `work` on all ranks together.
double timed(Communicator& communicator, const std::function<void()>& work) {
    communicator.barrier();
    const auto begin = Clock::now();
    work();
    communicator.barrier();
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

void dd(const std::string& arguments, uint64_t bytes) {
    const std::string command =
        "dd bs=8M iflag=count_bytes,fullblock count=" + std::to_string(bytes) + " status=none " +
        arguments;
    if (std::system(command.c_str()) != 0) {
        throw OutputFileError(command + ": failed; is there enough space?");
    }
}

/// Drops clean pages of files from the page cache; returns the share that stays in it.
double drop_cache(const std::vector<std::string>& files) {
    size_t resident = 0;
    size_t pages = 0;
    for (const std::string& path : files) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const auto bytes = static_cast<size_t>(std::filesystem::file_size(path));
        ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
        std::vector<unsigned char> in_core((bytes + 4095) / 4096);
        if (at != MAP_FAILED && ::mincore(at, bytes, in_core.data()) == 0) {
            resident += static_cast<size_t>(
                std::count_if(in_core.begin(), in_core.end(),
                              [](unsigned char page) { return (page & 1) != 0; }));
            ::munmap(at, bytes);
        }
        pages += in_core.size();
        ::close(file);
    }
    return pages == 0 ? 0 : static_cast<double>(resident) / static_cast<double>(pages);
}

std::vector<uint32_t> checksums(const std::vector<StoredRows>& rows) {
    std::vector<uint32_t> sums;
    for (const StoredRows& r : rows) sums.push_back(crc32c({r.data, r.bytes()}));
    return sums;
}

/// Collects the rows of rank 0's table.
class Results {
public:
    void add(const char* what, uint64_t bytes, double ours, double theirs, double cached,
             int64_t wrong) {
        const auto rate = [bytes](double s) { return static_cast<double>(bytes) * 1e-9 / s; };
        std::printf("%7s  %12llu  %8.3f  %8.3f  %8.2f  %8.2f  %6.2f  %6.1f  %6lld\n", what,
                    static_cast<unsigned long long>(bytes), ours, theirs, rate(ours), rate(theirs),
                    theirs / ours, 100 * cached, static_cast<long long>(wrong));
        std::fflush(stdout);
        ours_[what].push_back(ours);
        theirs_[what].push_back(theirs);
    }
    void print_totals() {
        for (const auto& [what, ours] : ours_) {
            const auto sum = [](const std::vector<double>& times) {
                return std::accumulate(times.begin(), times.end(), 0.0);
            };
            const std::vector<double>& theirs = theirs_[what];
            std::printf("# %-5s ratio of the medians %.2f, of the sums %.2f, of the best %.2f\n",
                        what.c_str(), median(theirs) / median(ours), sum(theirs) / sum(ours),
                        *std::min_element(theirs.begin(), theirs.end()) /
                            *std::min_element(ours.begin(), ours.end()));
        }
    }

private:
    std::map<std::string, std::vector<double>> ours_, theirs_;
};

int64_t run(Communicator& communicator, const Options& o) {
    const int rank = communicator.rank();
    TrainOptions t;
    t.model = {.num_layers = 12,
               .hidden_size = 768,
               .ffn_hidden_size = 3072,
               .num_attention_heads = 12,
               .seq_length = 1024,
               .max_position_embeddings = 1024,
               .vocab_size = 50257,
               .dtype = o.bf16 ? DType::bf16 : DType::fp32};
    t.threads_per_rank = 1;
    t.ranks_are_threads = true;
    const TrainingPlan plan(t, find_placements(communicator));
    const std::unique_ptr<Device> device = make_host_device();
    ModelRank model(t.model, plan.partition(), plan.schedule(), rank, *device);
    Context ctx({.threads = 1, .poll = {}, .operators = &device->operators()});
    model.initialise(ctx, 1234);

    const std::string dd_file = o.folder + "/dd.bin";
    std::optional<SaveFolder> folder;
    communicator.agree([&] {
        if (rank == 0) folder.emplace(o.folder, 0, "");
    });
    SaveFolder* const mine = folder ? &*folder : nullptr;
    CheckpointSaver synchronous(communicator, model, mine, {.root = o.folder});
    CheckpointSaver async(communicator, model, mine, {.root = o.folder, .async = true});
    std::vector<StoredTensor> optimizer;
    for (const auto& of_parameter : optimizer_file_tensors(t.model)) {
        optimizer.insert(optimizer.end(), of_parameter.begin(), of_parameter.end());
    }
    const std::vector<SafetensorsPlan> plans{{model_file_tensors(t.model), {}}, {optimizer, {}}};
    const std::vector<StoredRows> rows = stored_rows(model, plans);
    DeviceMemory copy = device->allocate(async.snapshot_bytes(), "memcpy");
    const std::vector<uint32_t> before = checksums(rows);

    uint64_t bytes = 0;
    for (const SafetensorsPlan& file : plans) bytes += file.file_bytes();

    if (rank == 0) {
        std::printf("# %s: GPT-2 124M, %s, %d ranks on threads, folder %s\n", kProgram,
                    o.bf16 ? "bf16" : "fp32", communicator.size(), o.folder.c_str());
        std::printf("# %5s  %12s  %8s  %8s  %8s  %8s  %6s  %6s  %6s\n", "", "size", "time", "dd",
                    "rate", "dd", "ratio", "cached", "#wrong");
        std::printf("# %5s  %12s  %8s  %8s  %8s  %8s  %6s  %6s  %6s\n", "", "(B)", "(s)", "(s)",
                    "(GB/s)", "(GB/s)", "", "(%)", "");
    }
    Results results;
    int64_t wrong_in_all = 0;
    for (int64_t step = 1; step <= o.rounds; ++step) {
        const std::string saved = step_folder(o.folder, step);
        const TrainingState state{
            .step = step, .seq_length = 1024, .dtype = o.bf16 ? "bf16" : "fp32"};
        const auto in_turns = [&](const char* what, const double& cached, const auto& before_each,
                                  const auto& us, const auto& them, const auto& count_wrong) {
            const auto time_of = [&](const auto& side) {
                std::this_thread::sleep_for(std::chrono::seconds(o.rest));
                before_each();
                return timed(communicator, side);
            };
            double ours = 0;
            if (step % 2 == 0) ours = time_of(us);
            const double theirs = time_of(them);
            if (step % 2 != 0) ours = time_of(us);
            int64_t wrong = 0;
            const int64_t of_rank = count_wrong();
            for (const auto& one : communicator.all_gather(std::as_bytes(std::span(&of_rank, 1)))) {
                int64_t count = 0;
                std::memcpy(&count, one.data(), sizeof count);
                wrong += count;
            }
            wrong_in_all += wrong;
            if (rank == 0) results.add(what, bytes, ours, theirs, cached, wrong);
        };
        const auto on_first = [&](const auto& work) {
            communicator.agree([&] {
                if (rank == 0) work();
            });
        };
        const auto nothing_wrong = [] { return int64_t{0}; };

        in_turns(
            "pause", 1, [] {}, [&] { async.begin(state); },
            [&] {
                std::byte* to = copy.data();
                for (const StoredRows& r : rows) {
                    std::memcpy(to, r.data, r.bytes());
                    to += r.bytes();
                }
            },
            nothing_wrong);
        (void)async.finish();
        on_first([&] {
            std::filesystem::remove_all(saved);
            std::filesystem::remove(dd_file);
        });
        in_turns(
            "write", 0, [] {},
            [&] {
                synchronous.begin(state);
                (void)synchronous.finish();
            },
            [&] { on_first([&] { dd("if=/dev/zero conv=fsync of=" + dd_file, bytes); }); },
            nothing_wrong);
        for (const StoredRows& r : rows) {
            std::memset(const_cast<std::byte*>(r.data), 0xff, r.bytes());
        }
        std::vector<std::string> files;
        for (const auto& file : std::filesystem::directory_iterator(saved)) {
            files.push_back(file.path());
        }
        double cached = 0;  // larger share of the two sides
        const auto forget = [&] {
            on_first([&] { cached = std::max(cached, drop_cache(files)); });
        };
        in_turns(
            "read", cached, forget,
            [&] {
                const Checkpoint checkpoint(find_checkpoint(saved, false));
                checkpoint.verify(communicator);
                checkpoint.fill(model, ctx);
            },
            [&] {
                on_first([&] {
                    for (const std::string& file : files) {
                        dd("of=/dev/null if=" + file, std::filesystem::file_size(file));
                    }
                });
            },
            [&] {
                const std::vector<uint32_t> after = checksums(rows);
                int64_t wrong = 0;
                for (size_t i = 0; i < after.size(); ++i) wrong += after[i] != before[i];
                return wrong;
            });
        on_first([&] {
            std::filesystem::remove_all(saved);
            std::filesystem::remove(dd_file);
        });
    }
    if (rank == 0) results.print_totals();
    return wrong_in_all;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    int ranks = 2;
    CLI::App app("Writing and reading the state of GPT-2 124M against dd on the same disk");
    app.add_option("--folder", options.folder, "On the disk to measure; made if it is not there")
        ->required();
    app.add_option("--ranks", ranks)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--rest", options.rest,
                   "Seconds before each transfer: disks of virtual machines have an allowance that "
                   "fills again")
        ->capture_default_str();
    app.add_flag("--bf16", options.bf16, "Weights in bf16 beside masters in fp32");
    CLI11_PARSE(app, argc, argv);
    const tool::Launch launch{.transport = "threads", .ranks = ranks};
    std::atomic<int64_t> wrong{0};
    const int code = tool::run_ranks(kProgram, launch, [&](Communicator& communicator) {
        const int64_t found = run(communicator, options);
        if (communicator.rank() == 0) wrong = found;
    });
    return code == 0 && wrong > 0 ? static_cast<int>(ExitCode::failed) : code;
}

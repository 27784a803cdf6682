// SPDX-License-Identifier: Apache-2.0
// vocabpipe select knn, import and export, as programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <vector>

#include "src/select/files/npy/npy_file.hpp"
#include "tests/tool/run_program.hpp"
#include "tests/train/data/temp_folder.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// A folder in which commands run.
class KnnCommand : public ::testing::Test {
protected:
    template <typename T>
    void write_npy(const std::string& name, NpyType type, const std::vector<int64_t>& shape,
                   const std::vector<T>& numbers) const {
        NpyOutput file(folder_ / name, type, shape);
        file.write(std::span<const T>(numbers));
        file.publish();
    }
    void write_embeddings(const std::string& name, int64_t n, int64_t width) const {
        std::mt19937_64 random(1);
        std::normal_distribution<float> normal;
        std::vector<float> numbers(static_cast<size_t>(n * width));
        for (float& number : numbers) number = normal(random);
        write_npy(name, NpyType::f4, {n, width}, numbers);
    }
    [[nodiscard]] Outcome run(const std::string& flags, const std::string& before = {}) const {
        return run_shell("cd '" + (folder_ / "") + "' && " + before +
                         " '" VOCABPIPE_PROGRAM "' select " + flags);
    }
    void succeed(const std::string& flags, const std::string& before = {}) const {
        const Outcome outcome = run(flags, before);
        EXPECT_EQ(outcome.exit_code, 0) << flags << ": " << outcome.error;
    }
    /// The one line of a command that is refused; it leaves nothing behind.
    [[nodiscard]] std::string refused(const std::string& flags, int exit_code) const {
        const auto before = folder_.names();
        const Outcome outcome = run(flags);
        EXPECT_EQ(outcome.exit_code, exit_code) << flags << ": " << outcome.error;
        EXPECT_EQ(std::ranges::count(outcome.error, '\n'), 1) << outcome.error;
        EXPECT_EQ(folder_.names(), before) << flags;
        return outcome.error;
    }
    TempFolder folder_;
};

TEST_F(KnnCommand, WritesTheSameGraphForAnyRanksAndThreads) {
    write_embeddings("x.npy", 600, 12);
    const Outcome outcome = run("knn --embeddings x.npy --neighbours 4 --output one");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("one: 600 samples, "), HasSubstr(" GFLOP/s in "),
                                      HasSubstr("large products alone: ")));
    for (const std::string flags : {"--ranks 2", "--ranks 3 --threads-per-rank 2", "--ranks 4"}) {
        succeed("knn --embeddings x.npy --neighbors 4 --output many --transport threads " + flags);
        EXPECT_TRUE(read_file(folder_ / "one") == read_file(folder_ / "many")) << flags;
    }
#ifdef VOCABPIPE_MPIRUN
    succeed("knn --embeddings x.npy --neighbours 4 --output many",
            "'" VOCABPIPE_MPIRUN "' --oversubscribe -np 2");
    EXPECT_TRUE(read_file(folder_ / "one") == read_file(folder_ / "many"));
#endif
}

TEST_F(KnnCommand, PlansMemoryWithoutWorking) {
    write_embeddings("x.npy", 600, 12);
    const auto before = folder_.names();
    const Outcome outcome = run("knn --embeddings x.npy --dry-run");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("600 samples of 12 numbers, 1 rank"),
                                      HasSubstr("memory per rank"), HasSubstr("embeddings: ")));
    EXPECT_EQ(folder_.names(), before);
    EXPECT_THAT(refused("knn --embeddings x.npy --output g --memory 1000", 4),
                HasSubstr("--memory 1000: a rank needs "));
}

TEST_F(KnnCommand, SearchesInIndices) {
    write_embeddings("x.npy", 600, 12);
    EXPECT_THAT(refused("knn --embeddings x.npy --output g --ef-search 100", 2),
                HasSubstr("--ef-search: needs --index hnsw"));
    const std::string flags = "knn --embeddings x.npy --output g --index hnsw";
#ifdef VOCABPIPE_HNSW
    const Outcome outcome = run(flags + " --recall-samples 50");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("indices of all samples in "),
                                      ContainsRegex("recall of 50 samples: (9[0-9]|100)\\.")));
    const Outcome plan = run(flags + " --dry-run");
    EXPECT_THAT(plan.output, HasSubstr("indices: "));
#else
    EXPECT_THAT(refused(flags, 2), HasSubstr("this build has no hnswlib"));
#endif
}

TEST_F(KnnCommand, RefusesBadInputInOneLine) {
    write_npy<float>("zero.npy", NpyType::f4, {2, 2}, {1, 2, 0, 0});
    write_npy<float>("nan.npy", NpyType::f4, {2, 2}, {1, 2, 0, NAN});
    write_npy<float>("row.npy", NpyType::f4, {2}, {1, 2});
    write_file(folder_ / "text", "no tensors");
    EXPECT_THAT(refused("knn --embeddings zero.npy --output g", 3),
                HasSubstr("zero.npy: embedding of sample 1: is all zeros"));
    EXPECT_THAT(refused("knn --embeddings nan.npy --output g", 3),
                HasSubstr("nan.npy: row 1: embedding has nan"));
    // Memory is checked before the embeddings are read for their mean.
    EXPECT_THAT(refused("knn --embeddings nan.npy --centre --output g --memory 1000", 4),
                HasSubstr("--memory 1000: a rank needs "));
    EXPECT_THAT(refused("knn --embeddings row.npy --output g", 3), HasSubstr("has shape [2]"));
    EXPECT_THAT(refused("knn --embeddings none.npy --output g", 3), HasSubstr("none.npy"));
    EXPECT_THAT(refused("knn --embeddings text --output g", 3), HasSubstr("text"));
    EXPECT_THAT(refused("knn --embeddings zero.npy", 2), HasSubstr("--output: is required"));
    EXPECT_THAT(refused("knn --embeddings zero.npy --output zero.npy", 2), HasSubstr("--output"));
    EXPECT_THAT(refused("knn --embeddings zero.npy --output text", 2), HasSubstr("--output text"));
    EXPECT_THAT(refused("knn --embeddings zero.npy --output g --neighbours 0", 2),
                HasSubstr("--neighbours 0"));
    write_embeddings("x.npy", 3, 2);
    EXPECT_THAT(refused("knn --embeddings x.npy --output missing/g", 1), HasSubstr("missing/g"));
}

TEST_F(KnnCommand, TakesEdgesInAndOut) {
    write_npy<double>("edges.npy", NpyType::f8, {2, 3}, {0, 1, 0.5, 2, 1, 0.25});
    const Outcome outcome = run("import --edges edges.npy --samples 4 --output g");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
    EXPECT_THAT(outcome.output, HasSubstr("g: 4 samples, 2 edges; "));
    succeed("export g --output edges.txt");
    EXPECT_EQ(read_file(folder_ / "edges.txt"), "0 1 0.5\n1 2 0.25\n");
    EXPECT_THAT(refused("export g --output edges.txt", 2), HasSubstr("already exists"));
    write_file(folder_ / "letter.txt", "Dear reader");
    EXPECT_THAT(refused("export g --output letter.txt", 2), HasSubstr("letter.txt"));
    EXPECT_THAT(refused("export g --output g", 2), HasSubstr("--output g"));
    EXPECT_THAT(refused("export g --output x.csv", 2), HasSubstr("must end in .parquet"));
    EXPECT_THAT(refused("export edges.npy --output x.txt", 3), HasSubstr("edges.npy"));
    EXPECT_THAT(refused("import --edges edges.npy --samples 2 --output h", 3),
                HasSubstr("row 1: names sample 2"));
    EXPECT_THAT(refused("import --edges edges.npy --memory 16 --output h", 4),
                HasSubstr("--memory"));
}

#ifndef VOCABPIPE_PARQUET
TEST_F(KnnCommand, NamesTheOptionForParquet) {
    write_npy<double>("edges.npy", NpyType::f8, {1, 3}, {0, 1, 0.5});
    succeed("import --edges edges.npy --output g");
    for (const std::string flags :
         {"knn --embeddings x.parquet --output h", "import --edges x.parquet --output h",
          "export g --output x.parquet"}) {
        EXPECT_THAT(refused(flags, 2),
                    HasSubstr("x.parquet: this build has no Parquet; configure it with "
                              "-DVOCABPIPE_ENABLE_PARQUET=ON"));
    }
}
#endif

}  // namespace
}  // namespace vocabpipe::testing

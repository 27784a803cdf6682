// SPDX-License-Identifier: Apache-2.0
// The table of bad input: for each row the exit code and the one line that says what is wrong, with
// value, limit and remedy. Each row runs on threads and under mpirun, where still one line is
// printed.
#include "tests/faults/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <ostream>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr seconds kLimit{60};
constexpr int kRanks = 2;

enum class On { both, threads, mpi };

struct Row {
    std::string name;
    Arguments arguments;  ///< after those of a run that works; "@" stands for the test's folder
    int code;
    std::vector<std::string> says;
    On on = On::both;
    std::function<void(const TempFolder&)> prepare = {};
    friend void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }
};

void cut_file(const std::string& path, uint64_t bytes) {
    std::filesystem::resize_file(path, bytes);
}

/// The first bytes of a file of another kind.
Row wrong_file(const std::string& name, const std::string& head, const std::string& says) {
    return {name,
            {"--data-path", "@/other"},
            3,
            {"/other", says},
            On::both,
            [head](const TempFolder& folder) {
                write_file(folder / "other", head + std::string(4096, '\3'));
            }};
}

std::vector<Row> rows() {
    const std::string at_least_1 = "must be at least 1";
    std::vector<Row> all{
        // The command line.
        {"UnknownFlag", {"--number-of-layers", "3"}, 2, {"--number-of-layers", "train_gpt --help"}},
        {"MisspeltFlag",
         {"--num-layer", "3"},
         2,
         {"--num-layer: unknown flag; did you mean --num-layers?"},
         On::threads},
        {"FlagWithoutValue", {"--lr"}, 2, {"--lr"}},
        {"NotANumber", {"--hidden-size", "wide"}, 2, {"--hidden-size", "wide", "not a number"}},
        {"NumberOutOfRange",
         {"--num-layers", "99999999999999"},
         2,
         {"--num-layers", "99999999999999"}},
        {"NumberBeyond64Bits",
         {"--train-iters", "9223372036854775808"},
         2,
         {"--train-iters 9223372036854775808", "out of range"},
         On::threads},
        {"NegativeSeed", {"--seed", "-1"}, 2, {"--seed -1", "at least 0"}, On::threads},
        {"OctalNumber", {"--train-iters", "010"}, 2, {"--train-iters 010", "decimal"}, On::threads},
        {"InfiniteNumber", {"--lr", "1e999"}, 2, {"--lr 1e999", "finite"}, On::threads},
        {"EmptyNumber", {"--lr", ""}, 2, {"--lr \"\"", "must not be empty"}, On::threads},
        {"EmptyPathToSave", {"--save", ""}, 2, {"--save \"\"", "must not be empty"}, On::threads},
        {"BatchWarmUpWithAValueMissing",
         {"--rampup-batch-size", "1", "1"},
         2,
         {"--rampup-batch-size: got 2 values", "START INCREMENT SAMPLES"},
         On::threads},
        {"ValueThatIsLongAndNoText",
         {"--schedule", std::string(5000, 'x') + "\xff\x1b[31m"},
         2,
         {"--schedule " + std::string(200, 'x') + "...", "1f1b"},
         On::threads},
        {"PipeInPlaceOfASchedule",
         {"--schedule", "@/pipe.csv"},
         3,
         {"/pipe.csv", "not a regular file"},
         On::threads,
         [](const TempFolder& folder) { ::mkfifo((folder / "pipe.csv").c_str(), 0600); }},
        {"UnknownKeyInTheConfig",
         {"--config", "@/run.toml"},
         2,
         {"--config ",
          "/run.toml:2: unknown flag --micro-batchsize; did you mean micro-batch-size?"},
         On::both,
         [](const TempFolder& folder) {
             write_file(folder / "run.toml", "lr = 1e-3\nmicro-batchsize = 2\n");
         }},
        {"WrongValueInTheConfig",
         {"--config", "@/run.toml"},
         2,
         {"--norm-epsilon", "wide", "/run.toml:1)"},
         On::both,
         [](const TempFolder& folder) {
             write_file(folder / "run.toml", "norm-epsilon = 'wide'\n");
         }},
        {"ContradictionInTheConfig",
         {"--config", "@/run.toml"},
         2,
         {"--min-lr 1: must be between 0 and --lr 0.0003", "/run.toml:1)"},
         On::both,
         [](const TempFolder& folder) { write_file(folder / "run.toml", "min-lr = 1\n"); }},
        {"ConfigMissing", {"--config", "@/none.toml"}, 2, {"--config", "/none.toml"}},
        {"ConfigThatCannotBeRead",
         {"--config", "/proc/self/mem"},
         2,
         {"--config /proc/self/mem: cannot be read (Input/output error)"}},
        {"ConfigThatIsAFolder", {"--config", "@"}, 2, {"--config", "is a folder"}, On::threads},
        {"DecayStyleUnknown",
         {"--lr-decay-style", "cosin"},
         2,
         {"--lr-decay-style cosin", "constant, linear, cosine, WSD"}},
        {"WsdWithoutItsSteps",
         {"--lr-decay-style", "WSD"},
         2,
         {"--lr-decay-style WSD", "--lr-wsd-decay-iters"}},
        {"GroupWithoutATensor",
         {"--param-group", "*norm*:weight_decay=0"},
         2,
         {"--param-group *norm*:weight_decay=0", "matches no tensor", "transformer.wte.weight"}},
        {"NoExitDuration",
         {"--exit-duration-in-mins", "0"},
         2,
         {"--exit-duration-in-mins 0", "positive"}},
        {"UnknownSchedule", {"--schedule", "2f2b"}, 2, {"--schedule 2f2b", "1f1b", "gpipe"}},
        {"UnknownVocabMode", {"--vocab-mode", "three"}, 2, {"--vocab-mode three", "two_barriers"}},
        {"UnknownReduction", {"--reduction", "tree"}, 2, {"--reduction", "tree", "native"}},
        {"UnknownType", {"--dtype", "fp8"}, 2, {"--dtype", "fp8", "bf16"}},
        {"UnknownTransport", {"--transport", "pigeon"}, 2, {"--transport", "pigeon", "threads"}},
        {"UnknownDevice", {"--device", "tpu"}, 2, {"--device", "tpu", "cuda"}},
        {"LeftMultiprocessorsOnHosts",
         {"--left-multiprocessors", "16"},
         2,
         {"--left-multiprocessors 16", "--device cuda", "host"}},
        {"ProductChoicesOnHosts",
         {"--product-choices", "choices"},
         2,
         {"--product-choices choices", "--device cuda", "host"}},
        {"NondeterministicAttentionOnHosts",
         {"--nondeterministic-attention"},
         2,
         {"--nondeterministic-attention", "--device cuda", "host"}},
        {"TimeProductsOnHosts",
         {"--time-products", "choices"},
         2,
         {"--time-products choices", "--device cuda", "host"}},
#ifdef VOCABPIPE_WITH_CUDA
        {"NoGpu",
         {"--device", "cuda"},
         6,
         {"--device cuda: no GPU was found", "CUDA_VISIBLE_DEVICES", "--device host"},
         On::both,
         [](const TempFolder&) { ::setenv("CUDA_VISIBLE_DEVICES", "", 1); }},
#else
        {"CudaInABuildForHosts",
         {"--device", "cuda"},
         2,
         {"--device cuda", "no CUDA", "-DVOCABPIPE_ENABLE_CUDA=ON", "--device host"}},
#endif
        {"UnknownDataFormat",
         {"--data-format", "raw-u64"},
         2,
         {"--data-format", "raw-u64", "raw-u16"}},
        {"MegatronDataAsRawTokens",
         {"--data-format", "raw-u16"},
         3,
         {"toy.idx and .bin", "remove --data-format"},
         On::threads},
        {"RanksUnderMpi", {"--ranks", "2"}, 2, {"--ranks 2", "mpirun -np P"}, On::mpi},
        {"ThreadsWithoutRanks", {"--ranks", "0"}, 2, {"--ranks 0", "--ranks P"}, On::threads},
        {"TooManyThreads",
         {"--ranks", "100000"},
         2,
         {"--ranks 100000", "at most", "mpirun"},
         On::threads},
        {"CostsWithZero", {"--schedule-costs", "0,1"}, 2, {"--schedule-costs 0,1", "positive"}},
        {"CostsThatAreNone", {"--schedule-costs", "abc"}, 2, {"--schedule-costs abc", "auto"}},
        {"CostsWithATail", {"--schedule-costs", "1,2,3"}, 2, {"--schedule-costs 1,2,3"}},
        {"CostsBeyond64Bits",
         {"--schedule-costs", "99999999999999999999,1"},
         2,
         {"--schedule-costs 99999999999999999999,1", "at most 2^36"},
         On::threads},
        {"CostFileMissing",
         {"--schedule-costs", "@/none.json"},
         3,
         {"/none.json", "cannot be read"}},
        {"TilePiecesBeyondTheMost", {"--tile-pieces", "65"}, 2, {"--tile-pieces 65", "1 to 64"}},
        {"OverlapTableMissing",
         {"--overlap-table", "@/none.json"},
         3,
         {"/none.json", "cannot be read"}},
        {"CostFileOfAnotherKind",
         {"--schedule-costs", "@/other.json"},
         3,
         {"/other.json", "not valid JSON"},
         On::both,
         [](const TempFolder& folder) { write_file(folder / "other.json", "F,B\n1,2\n"); }},
        {"ScheduleFileMissing", {"--schedule", "@/none.csv"}, 3, {"/none.csv", "cannot be read"}},
        {"ScheduleFileForOtherMicrobatches",
         {"--schedule", "@/one.csv"},
         3,
         {"/one.csv", "has 1 microbatches", "gives 8"},
         On::both,
         [](const TempFolder& folder) {
             write_file(folder / "one.csv", "0F0,0B0\r\n1F0,1B0\r\n");
         }},
        {"LayoutWithAnUnknownLetter",
         {"--pipeline-model-parallel-layout", "Et|xL"},
         2,
         {"position 4", "'x'"}},
        {"LayoutOfWholeLayersForAShardedMode",
         {"--pipeline-model-parallel-layout", "Ett|ttL", "--vocab-mode", "one_barrier"},
         2,
         {"layout \"Ett|ttL\"", "vocabulary mode one_barrier; use V for sharded layers"}},
        {"NegativeChunks", {"--chunks", "-1"}, 2, {"--chunks -1", "must be at least 0"}},
        {"ChunksThatTheScheduleHasNot",
         {"--schedule", "1f1b", "--chunks", "3"},
         2,
         {"--chunks 3", "1f1b"}},
        {"MoreStagesThanLayers",
         {"--schedule", "interleaved", "--chunks", "100"},
         2,
         {"must be at least the number of stages, 200", "fewer stages"}},
        {"ChunksTwice",
         {"--chunks", "2", "--num-layers-per-virtual-pipeline-stage", "1"},
         2,
         {"--num-layers-per-virtual-pipeline-stage 1", "--chunks 2"}},
        {"NegativeGroup", {"--group-size", "-3"}, 2, {"--group-size -3", "must be at least 0"}},
        {"NegativeMemoryLimit", {"--memory-limit", "-1"}, 2, {"--memory-limit -1"}},
        {"NegativeWarmUp", {"--warm-up-depth", "-1"}, 2, {"--warm-up-depth -1"}},
        {"ProfileThatCannotBeWritten",
         {"--profile", "@/none/p.json"},
         1,
         {"/none/p.json", "cannot create"}},
        {"NoDeadline",
         {"--distributed-timeout-seconds", "0"},
         2,
         {"--distributed-timeout-seconds 0", "positive"}},
        {"NegativeThreads", {"--threads-per-rank", "-1"}, 2, {"--threads-per-rank -1", at_least_1}},
        {"TooManyThreadsPerRank",
         {"--threads-per-rank", "100000"},
         2,
         {"--threads-per-rank 100000", "at most 1024"}},
        // Sizes.
        {"NoVocabulary", {"--vocab-size", "0"}, 2, {"--vocab-size 0", at_least_1}},
        {"VocabularyBeyond32Bits",
         {"--vocab-size", "3000000000"},
         2,
         {"--vocab-size 3000000000", "2147483647"}},
        {"NegativeHiddenSize", {"--hidden-size", "-8"}, 2, {"--hidden-size -8", at_least_1}},
        {"AbsurdHiddenSize",
         {"--hidden-size", "1000000000"},
         2,
         {"--hidden-size 1000000000", "at most 16777216"}},
        {"NegativeLayers", {"--num-layers", "-2"}, 2, {"--num-layers -2", at_least_1}},
        {"NoFeedForward", {"--ffn-hidden-size", "0"}, 2, {"--ffn-hidden-size 0", at_least_1}},
        {"HeadsThatDoNotDivide",
         {"--num-attention-heads", "3"},
         2,
         {"--num-attention-heads 3", "--hidden-size 32"}},
        {"NoHeads", {"--num-attention-heads", "0"}, 2, {"--num-attention-heads 0", at_least_1}},
        {"NoSequence", {"--seq-length", "0"}, 2, {"--seq-length 0", at_least_1}},
        {"FewerPositionsThanTokens",
         {"--max-position-embeddings", "8"},
         2,
         {"--max-position-embeddings 8", "--seq-length 32"}},
        {"FewerLayersThanRanks",
         {"--num-layers", "1"},
         2,
         {"--num-layers 1", "number of ranks, 2", "use more layers or fewer ranks"}},
        {"BatchNoMultiple",
         {"--micro-batch-size", "3"},
         2,
         {"--global-batch-size 8", "multiple of --micro-batch-size 3"}},
        {"NoMicroBatch", {"--micro-batch-size", "0"}, 2, {"--micro-batch-size 0", at_least_1}},
        {"NegativeBatch", {"--global-batch-size", "-8"}, 2, {"--global-batch-size -8", at_least_1}},
        {"TooManyMicrobatches",
         {"--global-batch-size", "1000000"},
         2,
         {"--global-batch-size 1000000", "at most 65536", "use a larger --micro-batch-size"}},
        {"NoSteps", {"--train-iters", "0"}, 2, {"--train-iters 0", at_least_1}},
        {"WarmUpBeyondTheEnd",
         {"--lr-warmup-iters", "3"},
         2,
         {"--lr-warmup-iters 3", "between 0 and --train-iters 2"}},
        {"NegativeMargin",
         {"--broadcast-margin", "-1"},
         2,
         {"--broadcast-margin -1: must be at least 0"}},
        {"MarginOf309Digits",
         {"--broadcast-margin", std::string(309, '9')},
         2,
         {"--broadcast-margin 999", "is not a number, or is out of range"},
         On::threads},
        {"LearningRateNotANumber", {"--lr", "nan"}, 2, {"--lr nan"}},
        {"NegativeLearningRate", {"--lr", "-0.1"}, 2, {"--lr -0.1", "at least 0"}},
        {"LeastAboveLargestLearningRate", {"--min-lr", "1"}, 2, {"--min-lr 1", "--lr 0.0003"}},
        {"BetaOfOne", {"--adam-beta2", "1"}, 2, {"--adam-beta2 1", "below 1"}},
        {"EpsilonOfZero", {"--adam-eps", "0"}, 2, {"--adam-eps 0", "positive"}},
        {"SmoothingOfOne", {"--label-smoothing", "1"}, 2, {"--label-smoothing 1", "below 1"}},
        {"NegativeZLoss", {"--z-loss", "-1"}, 2, {"--z-loss -1", "at least 0"}},
        {"ZLossNotANumber", {"--z-loss", "nan"}, 2, {"--z-loss nan", "finite"}},
        {"LogNever", {"--log-interval", "0"}, 2, {"--log-interval 0", at_least_1}},
        // Data.
        {"MissingFile", {"--data-path", "@/none"}, 3, {"/none: does not exist", ".idx and .bin"}},
        {"EmptyPath", {"--data-path", ""}, 2, {"--data-path"}},
        {"Folder", {"--data-path", "@"}, 3, {"folder"}},
        {"BlendWithoutAWeight",
         {"--data-path", "1", "@/toy", "@/toy"},
         2,
         {"--data-path: has 3 words", "a weight and a name"},
         On::threads},
        {"BlendWithAWeightOfZero",
         {"--data-path", "1", "@/toy", "0", "@/toy"},
         2,
         {"--data-path: the weight '0'", "above 0"},
         On::threads},
        {"MissingFileOfABlend",
         {"--data-path", "1", "@/toy", "2", "@/none"},
         3,
         {"/none: does not exist"},
         On::threads},
        {"SplitOfWords",
         {"--split", "most,some"},
         2,
         {"--split most,some", "969,30,1"},
         On::threads},
        {"EndOfDocumentsThatNobodyKnows",
         {"--eod-mask-loss"},
         2,
         {"--eod-mask-loss: ", "set --eod-token-id"},
         On::threads},
        {"EndOfDocumentsBeyondTheVocabulary",
         {"--eod-mask-loss", "--eod-token-id", "100000"},
         2,
         {"--eod-token-id 100000", "--vocab-size"},
         On::threads},
        {"TruncatedIndex",
         {},
         3,
         {"toy.idx", "has 50 bytes", "damaged or incomplete"},
         On::both,
         [](const TempFolder& f) { cut_file(f / "toy.idx", 50); }},
        {"EmptyIndex",
         {},
         3,
         {"toy.idx"},
         On::both,
         [](const TempFolder& f) { cut_file(f / "toy.idx", 0); }},
        {"ShortTokens",
         {},
         3,
         {"toy.bin", "9998", "10000"},
         On::both,
         [](const TempFolder& f) { cut_file(f / "toy.bin", 9998); }},
        {"IndexWithoutTokens",
         {},
         3,
         {"toy.bin"},
         On::both,
         [](const TempFolder& f) { std::filesystem::remove(f / "toy.bin"); }},
        {"TokensWithoutIndex",
         {},
         3,
         {"toy.idx: does not exist"},
         On::both,
         [](const TempFolder& f) { std::filesystem::remove(f / "toy.idx"); }},
        {"IndexOfAnotherKind",
         {},
         3,
         {"toy.idx"},
         On::both,
         [](const TempFolder& f) { write_file(f / "toy.idx", std::string(200, 'x')); }},
        wrong_file("Gzip", "\x1f\x8b\x08", "gzip"),
        wrong_file("Text", std::string(5000, 'a') + "\n", "text"),
        wrong_file("LlmcModel", bytes_of<int32_t>({20240326, 3, 1024, 50257, 12, 12, 768}),
                   "llm.c"),
        wrong_file("UnknownMagic", std::string("\x91\x92\x93\x94\x00\x01\xfe\xff", 8),
                   "--data-format"),
        {"RawWithoutFormat",
         {"--data-path", "@/raw"},
         3,
         {"/raw", "--data-format raw-u16"},
         On::both,
         [](const TempFolder& f) { std::filesystem::rename(f / "toy.bin", f / "raw"); }},
        {"RawOfOddLength",
         {"--data-path", "@/odd", "--data-format", "raw-u16"},
         3,
         {"/odd", "10001 bytes"},
         On::both,
         [](const TempFolder& f) { write_file(f / "odd", std::string(10001, '\1')); }},
        {"TokenIdsBeyondTheVocabulary",
         {"--vocab-size", "200"},
         3,
         {"toy.bin", "--vocab-size 200", "--vocab-size 257 or more"}},
        {"SequenceLongerThanTheData",
         {"--seq-length", "5000"},
         3,
         {"has 5000 tokens", "--seq-length 5000", "5001", "shorter --seq-length"}},
        // Output.
        {"TraceFolderUnderAFile",
         {"--trace-dir", "@/toy.bin/traces"},
         2,
         {"--trace-dir", "toy.bin is a file, but must be a folder"}},
        {"SaveIntervalWithoutSave",
         {"--save-interval", "5"},
         2,
         {"--save-interval 5", "--save DIR"}},
        {"SaveLimitWithoutSave", {"--save-total-limit", "5"}, 2, {"--save-total-limit 5"}},
        {"NegativeSaveInterval",
         {"--save", "@/steps", "--save-interval", "-1"},
         2,
         {"--save-interval -1", "must be at least 0"}},
        {"AdaptersOfNoRank", {"--lora-rank", "-1"}, 2, {"--lora-rank -1", "at least 1"}},
        {"AlphaWithoutAdapters",
         {"--lora-alpha", "16"},
         2,
         {"--lora-alpha", "there are no adapters", "set --lora-rank"}},
        {"AdaptersOfNoLayer",
         {"--lora-rank", "4", "--lora-target-modules", "c_attn,q_proj"},
         2,
         {"--lora-target-modules q_proj", "no linear layer has this name", "c_attn, c_proj, c_fc"}},
        {"AdaptersWithoutAModel",
         {"--load-adapter", "@/none"},
         2,
         {"--load-adapter", "/none: needs the model", "set --load"}},
        {"FinetuneWithoutLoad", {"--finetune"}, 2, {"--finetune", "--load DIR"}},
        {"LoadFromNowhere", {"--load", "@/none"}, 3, {"/none", "does not exist"}},
        {"LoadFromAFile", {"--load", "@/toy.bin"}, 3, {"/toy.bin", "is a file"}},
        {"SaveIntoAFile",
         {"--save", "@/toy.bin/steps"},
         2,
         {"--save", "toy.bin is a file, but must be a folder"}},
        {"LoadAPickle",
         {"--load", "@/model"},
         3,
         {"/model", "pickled weights are never read"},
         On::both,
         [](const TempFolder& folder) {
             std::filesystem::create_directory(folder / "model");
             write_file(folder / "model/config.json", "{}");
             write_file(folder / "model/pytorch_model.bin", "");
         }},
        {"LoadAnotherFamily",
         {"--load", "@/model"},
         3,
         {"/model/config.json: model_type: \"deepseek_v2\" is not supported",
          "the nearest is deepseek_v3, missing is softmax scores of experts"},
         On::both,
         [](const TempFolder& folder) {
             std::filesystem::create_directory(folder / "model");
             write_file(folder / "model/config.json", R"({"model_type": "deepseek_v2"})");
             write_file(folder / "model/model.safetensors", "");
         }},
        {"MetricsInAMissingFolder",
         {"--metrics", "@/none/metrics"},
         1,
         {"--metrics", "No such file or directory"}},
        {"ReportInAMissingFolder",
         {"--report", "@/none/report"},
         1,
         {"/none/report", "create the folder first"}},
        {"MetricsOnAFullDisk",
         {"--metrics", "/dev/full"},
         1,
         {"--metrics /dev/full", "No space left on device", "free space"}},
        {"MetricsOnAFullDiskAtTheLastStep",
         {"--train-iters", "1", "--metrics", "/dev/full"},
         1,
         {"--metrics /dev/full", "No space left on device"}},
        {"ReportOnAFullDisk",
         {"--report", "/dev/full"},
         1,
         {"/dev/full", "No space left on device", "free some space"}},
        // Memory.
        {"ModelBeyondTheMemory",
         {"--hidden-size", "65536", "--num-layers", "96"},
         4,
         {"the plan needs ", " MiB (most on rank ", " MiB are available",
          "reduce --micro-batch-size"}},
    };
    return all;
}

class BadInput : public ::testing::TestWithParam<Row> {
protected:
    [[nodiscard]] Arguments arguments() const {
        write_dataset(folder_ / "toy", some_tokens(5000));
        if (GetParam().prepare) GetParam().prepare(folder_);
        Arguments all = small_model(folder_ / "toy");
        for (std::string word : GetParam().arguments) {
            if (word.starts_with("@")) word = (folder_ / "") + word.substr(word == "@" ? 1 : 2);
            all.push_back(word);
        }
        return all;
    }
    void expect_one_clear_line(const Arguments& command) const {
        const std::set<std::string> before = folder_.names();
        Job job(folder_, command);
        EXPECT_EQ(job.wait(kLimit), GetParam().code);
        const auto lines = lines_with(job.error() + job.output(), "train_gpt: ");
        ASSERT_EQ(lines.size(), 1u) << job.output() << job.error();
        EXPECT_TRUE(lines.front().starts_with("train_gpt: error: "));
        for (const std::string& part : GetParam().says) {
            EXPECT_THAT(lines.front(), HasSubstr(part));
        }
        // Nothing half written, nobody left.
        std::set<std::string> after = folder_.names();
        after.erase("stdout");
        after.erase("stderr");
        EXPECT_EQ(after, before);
        EXPECT_THAT(left_over(folder_ / "toy", seconds(5)), IsEmpty());
    }
    TempFolder folder_;
};

class OnThreads : public BadInput {};
TEST_P(OnThreads, EndsWithOneClearLineAndItsExitCode) {
    expect_one_clear_line(on_threads(kRanks, arguments()));
}

class UnderMpirun : public BadInput {};
TEST_P(UnderMpirun, EndsWithOneClearLineAndItsExitCode) {
    // Without its second of grace after the first rank that fails, which each row would pay.
    expect_one_clear_line(Arguments{"env", "OMPI_MCA_odls_base_sigkill_timeout=0"} +
                          under_mpirun(kRanks, arguments()));
}

std::vector<Row> rows_on(On transport) {
    std::vector<Row> selected;
    for (Row& row : rows()) {
        if (row.on == On::both || row.on == transport) selected.push_back(std::move(row));
    }
    return selected;
}

std::string name_of(const ::testing::TestParamInfo<Row>& info) {
    return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Table, OnThreads, ::testing::ValuesIn(rows_on(On::threads)), name_of);
INSTANTIATE_TEST_SUITE_P(Table, UnderMpirun, ::testing::ValuesIn(rows_on(On::mpi)), name_of);

// --- what is no row of the table
// --------------------------------------------------------------------

class Launch : public ::testing::Test {
protected:
    Launch() { write_dataset(data_, some_tokens(5000)); }
    /// The one line that a command prints before it ends with `code`.
    std::string only_line(const Arguments& command, const ::testing::Matcher<int>& code) const {
        Job job(folder_, command);
        EXPECT_THAT(job.wait(kLimit), code) << job.output() << job.error();
        const auto lines = lines_with(job.error() + job.output(), "train_gpt: error: ");
        EXPECT_EQ(lines.size(), 1u) << job.output() << job.error();
        EXPECT_THAT(left_over(data_, seconds(5)), IsEmpty());
        return lines.empty() ? "" : lines.front();
    }
    /// What one rank runs, under a launcher.
    [[nodiscard]] Arguments small_run() const {
        return Arguments{VOCABPIPE_TRAIN_GPT} + small_model(data_);
    }
    TempFolder folder_;
    std::string data_ = folder_ / "toy";
};

TEST_F(Launch, WithoutADataPathIsAUsageError) {
    Arguments arguments = small_model(data_);
    arguments.resize(arguments.size() - 2);
    EXPECT_THAT(only_line(on_threads(2, arguments), 2), HasSubstr("--data-path"));
    EXPECT_THAT(only_line(under_mpirun(2, arguments), 2), HasSubstr("--data-path"));
}

TEST_F(Launch, ThreadsNeedANumberOfRanks) {
    EXPECT_THAT(
        only_line(Arguments{VOCABPIPE_TRAIN_GPT, "--transport", "threads"} + small_model(data_), 2),
        HasSubstr("--transport threads requires --ranks P"));
}

TEST_F(Launch, RanksWithDifferentFlagsEndWithTheFlagThatDiffers) {
    struct {
        Arguments first, second;
        std::string says;
    } const cases[] = {
        {{"--num-layers", "2"},
         {"--num-layers", "4"},
         "--num-layers 2 on rank 0 but --num-layers 4 on rank 1"},
        {{"--num-layers", "4"},
         {"--num-layers", "1"},
         "--num-layers 4 on rank 0 but --num-layers 1 on rank 1"},
        {{"--seed", "1"}, {"--seed", "2"}, "--seed 1 on rank 0 but --seed 2 on rank 1"},
        {{}, {"--train-iters", "3"}, "--train-iters 2 on rank 0 but --train-iters 3 on rank 1"},
        {{}, {"--bf16"}, "--dtype fp32 on rank 0 but --dtype bf16 on rank 1"},
        {{"--lr", "0.0003"}, {"--lr", "0.0004"}, "--lr 0.0003 on rank 0 but --lr 0.0004 on rank 1"},
        {{"--save", "a"}, {"--save", "b"}, "--save a on rank 0 but --save b on rank 1"},
        {{}, {"--report", "r"}, "--report not given on rank 0 but --report r on rank 1"},
        {{}, {"--exit-duration-in-mins", "1"}, "but --exit-duration-in-mins 1 on rank 1"},
        {{}, {"--distributed-timeout-seconds", "9"}, "but --distributed-timeout-seconds 9 on rank"},
        {{}, {"--transport-on-host", "mpi"}, "but --transport-on-host mpi on rank 1"},
        {{}, {"--no-such-flag"}, "--no-such-flag"},
        {{"--no-such-flag"}, {}, "--no-such-flag"},
    };
    for (const auto& one : cases) {
        const Arguments command =
            each_under_mpirun({small_run() + one.first, small_run() + one.second});
        EXPECT_THAT(only_line(command, 2), HasSubstr(one.says));
    }
}

TEST_F(Launch, RanksWithDifferentBinariesDoNotStart) {
    const std::string other = folder_ / "train_gpt";
    std::filesystem::copy_file(VOCABPIPE_TRAIN_GPT, other);
    std::ofstream(other, std::ios::app) << "rebuilt";
    const Arguments command =
        each_under_mpirun({small_run(), Arguments{other} + small_model(data_)});
    EXPECT_THAT(only_line(command, 2),
                AllOf(HasSubstr("the binary with the checksum"), HasSubstr("the same program")));
}

TEST_F(Launch, RanksThatSeeOtherFoldersDoNotStart) {
    const std::string first = folder_ / "first", second = folder_ / "second";
    std::filesystem::create_directories(first + "/run");
    std::filesystem::create_directory(second);
    const auto in_both = [&](const Arguments& flags) {
        const auto in = [&](const std::string& folder) {
            return Arguments{"env", "-C", folder} + small_run() + flags;
        };
        return each_under_mpirun({in(first), in(second)});
    };
    EXPECT_THAT(only_line(in_both({"--save", "saved"}), 2),
                AllOf(HasSubstr("--save saved: rank 1"), HasSubstr("all hosts share")));
    EXPECT_THAT(only_line(in_both({"--load", "run", "--save", "run"}), 3),
                AllOf(HasSubstr("--load run, which is there on rank 0 but --load run, which is not "
                                "there on rank 1"),
                      HasSubstr("all hosts share")));
}

TEST_F(Launch, EndsWhereAProcessNeverTakesPart) {
    const Arguments limited = small_run() + Arguments{"--distributed-timeout-seconds", "1"};
    const Arguments absent{"/bin/true"};
    for (const Arguments& command :
         {each_under_mpirun({limited, absent}), each_under_mpirun({absent, limited}, 3)}) {
        // 1 is mpirun's own, of the process without MPI_Init, where it sees that one first.
        EXPECT_THAT(only_line(command, AnyOf(5, 1)),
                    AllOf(HasSubstr("MPI_Init has not returned"),
                          HasSubstr("--distributed-timeout-seconds 1: a process of this launch")));
    }
}

TEST_F(Launch, RanksWithDifferentDataEndWithWhatDiffers) {
    write_dataset(folder_ / "shorter", some_tokens(4000));
    const Arguments command = each_under_mpirun(
        {small_run(), Arguments{VOCABPIPE_TRAIN_GPT} + small_model(folder_ / "shorter")});
    EXPECT_THAT(only_line(command, 3),
                AllOf(HasSubstr("5000 tokens"), HasSubstr("on rank 0 but train data"),
                      HasSubstr("4000 tokens"), HasSubstr("the same files")));
}

/// A shell that sets a limit and becomes train_gpt.
Arguments with_limit(const std::string& limit, const Arguments& command) {
    return Arguments{"sh", "-c", limit + "; exec \"$0\" \"$@\""} + command;
}

TEST_F(Launch, MemoryThatTheSystemRefusesIsReportedAndEndsWithExitCode4) {
    // Room for the program and the libraries, not for 1.5 GiB of weights, gradients and moments.
    const Arguments big =
        small_model(data_) + Arguments{"--hidden-size", "1024", "--num-layers", "8"};
    for (const char* limit : {"ulimit -v 600000", "ulimit -v 1000000"}) {
        EXPECT_THAT(only_line(with_limit(limit, on_threads(1, big)), 4),
                    AnyOf(HasSubstr("cannot be allocated; use a smaller model"),
                          HasSubstr("out of memory; use a smaller model")));
    }
    const Arguments ranks{VOCABPIPE_MPIRUN, "--oversubscribe", "-np", "2"};
    EXPECT_THAT(
        only_line(ranks + with_limit("ulimit -v 700000", Arguments{VOCABPIPE_TRAIN_GPT} + big), 4),
        HasSubstr("use a smaller model"));
}

TEST_F(Launch, QuietMpirunAddsNoLines) {
    if (has_open_mpi_5()) GTEST_SKIP() << "Open MPI 5 has no --quiet";
    Job job(folder_, Arguments{VOCABPIPE_MPIRUN, "--quiet", "--oversubscribe", "-np", "2",
                               VOCABPIPE_TRAIN_GPT} +
                         small_model(data_) + Arguments{"--lr", "-1"});
    EXPECT_EQ(job.wait(kLimit), 2);
    EXPECT_EQ(lines_with(job.error(), "train_gpt: error: --lr -1").size(), 1U);
    EXPECT_EQ(std::ranges::count(job.error(), '\n'), 1) << job.error();
}

TEST_F(Launch, TooLittleMemoryForAThreadIsNoInternalError) {
    for (int limit = 50'000; limit <= 100'000; limit += 10'000) {
        SCOPED_TRACE(limit);
        Job job(folder_, with_limit("ulimit -v " + std::to_string(limit),
                                    on_threads(2, small_model(data_))));
        const int code = job.wait(kLimit);
        EXPECT_THAT(job.error(), ::testing::Not(HasSubstr("internal")));
        // Elsewhere not even the libraries fit, or one of them ends the process (docs/errors.md).
        if (code != 1 && code != 4) continue;
        EXPECT_EQ(lines_with(job.error(), "train_gpt: error: ").size(), 1U) << job.error();
    }
}

TEST_F(Launch, TraceThatCannotBeWrittenWholeLeavesNoFile) {
    // Files end at 16 KiB; the trace of two ranks is longer.
    const Arguments arguments = small_model(data_) + Arguments{"--trace-dir", folder_ / "traces"};
    const std::string limit = "trap '' XFSZ; ulimit -f 32";
    EXPECT_THAT(only_line(with_limit(limit, on_threads(2, arguments)), 1),
                HasSubstr(".json: cannot write: File too large"));
    EXPECT_TRUE(std::filesystem::is_empty(folder_ / "traces"));
}

class FullDisk : public Launch {
protected:
    void SetUp() override {
        std::filesystem::create_directory(disk_);
        if (::mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=16k") != 0) {
            GTEST_SKIP() << "mounting needs root";
        }
        mounted_ = true;
    }
    void TearDown() override {
        if (mounted_) ::umount2(disk_.c_str(), MNT_DETACH);
    }
    std::string disk_ = folder_ / "disk";
    bool mounted_ = false;
};

TEST_F(FullDisk, TraceLeavesNoFileAndMetricsKeepWholeLines) {
    const Arguments trace = small_model(data_) + Arguments{"--trace-dir", disk_};
    EXPECT_THAT(only_line(under_mpirun(2, trace), 1), HasSubstr("No space left on device"));
    EXPECT_TRUE(std::filesystem::is_empty(disk_));

    const Arguments save = small_model(data_) + Arguments{"--save", disk_};
    EXPECT_THAT(only_line(under_mpirun(2, save), 1), HasSubstr("No space left on device"));
    EXPECT_TRUE(std::filesystem::is_empty(disk_));

    const Arguments metrics =
        small_model(data_) + Arguments{"--train-iters", "1000000", "--metrics", disk_ + "/metrics"};
    EXPECT_THAT(only_line(under_mpirun(2, metrics), 1), HasSubstr("No space left on device"));
    const std::string text = read_file(disk_ + "/metrics");
    EXPECT_GT(text.size(), 4096u);
    EXPECT_EQ(text.back(), '\n');
}

TEST_F(Launch, ResultsThatCannotBePrintedAreAnError) {
    const Arguments command = on_threads(2, small_model(data_));
    for (const char* output : {">/dev/full", ">&-"}) {
        const Arguments shell{"sh", "-c", "\"$0\" \"$@\" " + std::string(output)};
        EXPECT_THAT(only_line(shell + command, 1), HasSubstr("standard output: cannot write"));
        EXPECT_THAT(only_line(shell + Arguments{VOCABPIPE_TRAIN_GPT, "--help"}, 1),
                    HasSubstr("standard output: cannot write"));
    }
}

TEST_F(Launch, PipesThatNothingReadsAreNotWaitedFor) {
    const std::string pipe = folder_ / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    for (const char* flag : {"--metrics", "--report"}) {
        EXPECT_THAT(only_line(on_threads(2, small_model(data_) + Arguments{flag, pipe}), 1),
                    AllOf(HasSubstr(pipe), HasSubstr("nothing reads this pipe")));
    }
}

TEST_F(Launch, OutputsMayBeDevices) {
    const Arguments arguments =
        small_model(data_) + Arguments{"--report", "/dev/null", "--metrics", "/dev/null"};
    Job job(folder_, on_threads(2, arguments));
    EXPECT_EQ(job.wait(kLimit), 0) << job.error();
    EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(Launch, LastValueOfARepeatedFlagCounts) {
    const Arguments arguments = small_model(data_) + Arguments{"--train-iters", "3"};
    Job job(folder_, on_threads(2, arguments));
    EXPECT_EQ(job.wait(kLimit), 0) << job.error();
    EXPECT_THAT(job.output(), HasSubstr(" iteration 3/3"));
}

}  // namespace
}  // namespace vocabpipe::testing

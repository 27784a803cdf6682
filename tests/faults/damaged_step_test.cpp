// SPDX-License-Identifier: Apache-2.0
// A job that is started again and again with --load D --save D goes past damaged steps.
#include "tests/faults/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr seconds kLimit{60};
constexpr int kRanks = 2;
constexpr const char* kNewest = "step-00000006";
constexpr const char* kOlder = "step-00000004";

/// Loss and gradient norm of every step, as text: equal text, equal bits.
std::vector<std::string> losses(const std::string& metrics) {
    std::vector<std::string> steps;
    std::istringstream lines(read_file(metrics));
    for (std::string line; std::getline(lines, line);) {
        const auto step = nlohmann::json::parse(line);
        steps.push_back(step.at("step").dump() + " " + step.at("loss").dump() + " " +
                        step.at("grad_norm").dump());
    }
    return steps;
}

/// CRC-32C, as 8 hexadecimal digits.
std::string crc32c_text(const std::string& text) {
    uint32_t crc = ~uint32_t{0};
    for (const char c : text) {
        crc ^= static_cast<uint8_t>(c);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82F63B78U & (~(crc & 1U) + 1U));
    }
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", ~crc);
    return digits;
}

void change_byte(const std::string& path, size_t at) {
    std::string bytes = read_file(path);
    bytes.at(at) = static_cast<char>(bytes[at] ^ 1);
    write_file(path, bytes);
}

/// Steps 2, 4 and 6 of a run of eight, and what its metrics file says at the end.
class DamagedStep : public ::testing::Test {
protected:
    DamagedStep() {
        write_dataset(data_, some_tokens(5000));
        Job whole(folder_, on_threads(kRanks, line() + Arguments{"--metrics", folder_ / "whole"}));
        EXPECT_EQ(whole.wait(kLimit), 0) << whole.error();
        fs::remove_all(saved_ + "/step-00000008");
        fs::copy(saved_, folder_ / "kept", fs::copy_options::recursive);
        fs::copy_file(folder_ / "whole", metrics_);
    }

    [[nodiscard]] Arguments line() const {
        return small_model(data_) + Arguments{"--train-iters",   "8", "--save", saved_,
                                              "--save-interval", "2", "--lr",   "0.01"};
    }
    [[nodiscard]] Arguments again() const {
        return line() + Arguments{"--load", saved_, "--metrics", metrics_};
    }
    void start_over() {
        fs::remove_all(saved_);
        fs::copy(folder_ / "kept", saved_, fs::copy_options::recursive);
    }
    [[nodiscard]] std::set<std::string> steps() const {
        std::set<std::string> names;
        for (const auto& entry : fs::directory_iterator(saved_)) {
            names.insert(entry.path().filename());
        }
        return names;
    }
    /// The run ends as if it had never stopped, and says `what` of the newest step.
    void expect_passed_over(const Arguments& command, const std::string& what) {
        SCOPED_TRACE(what);
        Job job(folder_, command);
        EXPECT_EQ(job.wait(kLimit), 0) << job.error();
        EXPECT_THAT(job.output(), HasSubstr("loaded " + saved_ + "/" + kOlder));
        EXPECT_THAT(job.output(), HasSubstr("note: " + saved_ + "/" + kNewest));
        EXPECT_THAT(job.output(), HasSubstr(what));
        EXPECT_THAT(job.output(), HasSubstr("\n  the run goes on from an older step; this one is "
                                            "kept as " +
                                            saved_ + "/damaged-" + kNewest + "\n"));
        EXPECT_EQ(losses(metrics_), losses(folder_ / "whole"));
        EXPECT_THAT(steps(), ElementsAre(std::string("damaged-") + kNewest, "step-00000002", kOlder,
                                         kNewest, "step-00000008"));
    }

    TempFolder folder_;
    std::string data_ = folder_ / "text";
    std::string saved_ = folder_ / "run";
    std::string metrics_ = folder_ / "metrics";
};

TEST_F(DamagedStep, IsPassedOverWhateverIsWrongWithIt) {
    const std::string newest = saved_ + "/" + kNewest;
    const auto middle = [&](const std::string& name) {
        change_byte(newest + "/" + name, fs::file_size(newest + "/" + name) / 2);
    };
    const std::vector<std::pair<std::string, std::function<void()>>> cases{
        {"model.safetensors: tensor", [&] { middle("model.safetensors"); }},
        {"optimizer.safetensors: tensor", [&] { middle("optimizer.safetensors"); }},
        {"training.json: ", [&] { middle("training.json"); }},
        {"model.safetensors", [&] { fs::resize_file(newest + "/model.safetensors", 1000); }},
        {"config.json", [&] { fs::remove(newest + "/config.json"); }},
        {"training.json", [&] { fs::remove(newest + "/training.json"); }},
    };
    for (const auto& [what, damage] : cases) {
        start_over();
        damage();
        expect_passed_over(on_threads(kRanks, again()), what);
    }
    // What is set aside replaces nothing.
    fs::remove_all(saved_ + "/step-00000008");
    middle("model.safetensors");
    Job job(folder_, on_threads(kRanks, again()));
    EXPECT_EQ(job.wait(kLimit), 0) << job.error();
    EXPECT_TRUE(fs::exists(saved_ + "/damaged-" + kNewest + "-2/model.safetensors"));
}

TEST_F(DamagedStep, IsPassedOverByAllRanksAlike) {
    // Another model, if one believed it.
    const std::string config = saved_ + "/" + kNewest + "/config.json";
    std::string text = read_file(config);
    text.replace(text.find("\"n_layer\": 4"), 12, "\"n_layer\": 6");
    write_file(config, text);
    Arguments by_file{"--seq-length",
                      "32",
                      "--global-batch-size",
                      "8",
                      "--train-iters",
                      "8",
                      "--threads-per-rank",
                      "1",
                      "--data-path",
                      data_,
                      "--save",
                      saved_,
                      "--save-interval",
                      "2",
                      "--lr",
                      "0.01",
                      "--load",
                      saved_,
                      "--metrics",
                      metrics_};
    expect_passed_over(under_mpirun(kRanks, by_file), "config.json and the weights must be");
}

TEST_F(DamagedStep, EndsTheRunWhereItSavesElsewhereOrNoneIsWhole) {
    for (const char* step : {"step-00000002", kOlder, kNewest}) {
        change_byte(saved_ + "/" + step + "/model.safetensors", 9000);
    }
    const auto refused = [&](const Arguments& arguments, const std::string& what) {
        Job job(folder_, on_threads(kRanks, arguments));
        EXPECT_EQ(job.wait(kLimit), 3);
        EXPECT_THAT(lines_with(job.error(), "train_gpt: error: "), ElementsAre(HasSubstr(what)));
        EXPECT_THAT(steps(), ElementsAre("step-00000002", kOlder, kNewest));
        EXPECT_EQ(read_file(metrics_), read_file(folder_ / "whole"));
    };
    refused(again(), "none of 3 steps in " + saved_ + " is whole");
    Arguments elsewhere = again();
    *(std::ranges::find(elsewhere, "--save") + 1) = folder_ / "elsewhere";
    refused(elsewhere, "the file is damaged; load an older step");
    for (const char* step : {"step-00000002", kOlder, kNewest}) {
        fs::remove(saved_ + "/" + step + "/training.json");
    }
    refused(again(), "holds no complete saved step: step-00000006 has no training.json");
}

TEST_F(DamagedStep, IsNotOneOfANewerProgram) {
    const std::string path = saved_ + "/" + kNewest + "/training.json";
    auto json = nlohmann::json::parse(read_file(path));
    json.erase("crc32c");
    json["version"] = 2;
    json["crc32c"] = crc32c_text(json.dump());
    write_file(path, json.dump());
    Job newer(folder_, on_threads(kRanks, again()));
    EXPECT_EQ(newer.wait(kLimit), 3);
    EXPECT_THAT(newer.error(), HasSubstr("training.json: version: is 2, but this program reads 1"));
    EXPECT_THAT(steps(), ElementsAre("step-00000002", kOlder, kNewest));
    json["crc32c"] = "00000000";
    write_file(path, json.dump());
    expect_passed_over(on_threads(kRanks, again()), "version: is 2, but this program reads 1");
}

}  // namespace
}  // namespace vocabpipe::testing

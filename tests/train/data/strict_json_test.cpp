// SPDX-License-Identifier: Apache-2.0
#include "src/support/strict_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

StrictJson value(const std::string& json) {
    return StrictJson::parse(R"({"a": [)" + json + "]}", "f").at("a").items(1)[0];
}

/// What `read` gives of the value, or its message behind the place.
template <class Read>
std::string found(const std::string& json, const Read& read) {
    try {
        return ::testing::PrintToString(read(value(json)));
    } catch (const InputFileError& error) {
        const std::string message = error.what();
        EXPECT_TRUE(message.starts_with("f: a[0]: ")) << message;
        return message.substr(message.find("]: ") + 3);
    }
}

TEST(StrictJsonValue, IsAnIntegerWithinItsLimits) {
    const auto read = [](const StrictJson& json) { return json.integer(-3, 7); };
    const std::string range = "must be an integer from -3 to 7";
    EXPECT_EQ(found("-4", read), "-4: " + range);
    EXPECT_EQ(found("-3", read), "-3");
    EXPECT_EQ(found("7", read), "7");
    EXPECT_EQ(found("8", read), "8: " + range);
    for (const char* other : {"1.0", "\"1\"", "true", "null", "[1]"}) {
        EXPECT_EQ(found(other, read), range) << other;
    }
    const auto any = [](const StrictJson& json) { return json.integer(0, INT64_MAX); };
    EXPECT_EQ(found("9223372036854775807", any), "9223372036854775807");
    EXPECT_EQ(found("9223372036854775808", any),
              "9223372036854775808: must be an integer from 0 to 9223372036854775807");
    EXPECT_EQ(found("18446744073709551615", any),
              "18446744073709551615: must be an integer from 0 to 9223372036854775807");
}

TEST(StrictJsonValue, IsANumberWithinItsLimits) {
    const auto read = [](const StrictJson& json) { return json.number(0.5, 2); };
    const std::string range = "must be a number from 0.5 to 2.0";
    EXPECT_EQ(found("0.4999", read), "0.4999: " + range);
    EXPECT_EQ(found("0.5", read), "0.5");
    EXPECT_EQ(found("1", read), "1");
    EXPECT_EQ(found("2", read), "2");
    EXPECT_EQ(found("2.0001", read), "2.0001: " + range);
    EXPECT_EQ(found("\"1\"", read), range);
    const auto large = [](const StrictJson& json) { return json.number(1); };
    EXPECT_EQ(found("1e300", large), "1e+300");
    EXPECT_EQ(found("0.9", large), "0.9: must be a finite number of at least 1.0");
    EXPECT_EQ(found("null", large), "must be a finite number of at least 1.0");
}

TEST(StrictJsonValue, IsTextOrABoolean) {
    const auto text = [](const StrictJson& json) { return json.text(); };
    EXPECT_EQ(found("\"x\"", text), "\"x\"");
    EXPECT_EQ(found("1", text), "must be a string in quotes");
    const auto boolean = [](const StrictJson& json) { return json.boolean(); };
    EXPECT_EQ(found("true", boolean), "true");
    EXPECT_EQ(found("false", boolean), "false");
    EXPECT_EQ(found("0", boolean), "must be true or false");
}

TEST(StrictJsonValue, IsAListOfAtMostSoMany) {
    const auto count = [](const StrictJson& json) { return json.items(2).size(); };
    EXPECT_EQ(found("[]", count), "0");
    EXPECT_EQ(found("[1, 2]", count), "2");
    EXPECT_EQ(found("[1, 2, 3]", count), "has 3 entries; at most 2 are allowed");
    EXPECT_EQ(found("{}", count), "must be a list [...]");
}

TEST(StrictJsonValue, IsAnObjectWithItsKeys) {
    const auto members = [](const StrictJson& json) {
        std::string all;
        for (const auto& [key, inner] : json.members()) {
            all += key + "=" + std::to_string(inner.integer(0, 9));
        }
        return all;
    };
    EXPECT_EQ(found(R"({"x": 1, "y": 2})", members), "\"x=1y=2\"");
    EXPECT_EQ(found("[1]", members), "must be an object {...}");
    const auto x = [](const StrictJson& json) { return json.at("x").integer(0, 9); };
    EXPECT_EQ(found(R"({"x": 3})", x), "3");
    EXPECT_EQ(found(R"({"y": 3})", x), "\"x\" is missing; add it");
    EXPECT_EQ(found("7", x), "must be an object {...}");
    const auto only = [](const StrictJson& json) {
        json.only({"x", "y"});
        return json.has("x");
    };
    EXPECT_EQ(found(R"({"x": 3})", only), "true");
    EXPECT_EQ(found(R"({"y": 3})", only), "false");
    EXPECT_EQ(found(R"({"z": 3})", only), "unknown key \"z\"; use one of x, y");
    EXPECT_EQ(found("7", only), "must be an object {...}");
    EXPECT_FALSE(value("7").has("x"));
}

TEST(StrictJsonValue, NamesItsPlace) {
    const StrictJson root = StrictJson::parse(R"({"a": [{"b": {"c": [1, "x"]}}]})", "f");
    const auto message = [](const StrictJson& json) {
        return testing::message_of<InputFileError>([&] { json.fail("is wrong"); });
    };
    EXPECT_EQ(message(root), "f: is wrong");
    EXPECT_EQ(message(root.at("a")), "f: a: is wrong");
    const StrictJson b = root.at("a").items(1)[0].at("b");
    EXPECT_EQ(message(b.at("c").items(2)[1]), "f: a[0].b.c[1]: is wrong");
    EXPECT_EQ(message(b.members()[0].second), "f: a[0].b.c: is wrong");
    EXPECT_EQ(message(root.members()[0].second), "f: a: is wrong");
}

TEST(StrictJsonValue, IsOffWhereFilesLeaveAnOptionEmpty) {
    for (const char* off : {"null", "false", "\"none\"", "{}", "[]"}) {
        EXPECT_TRUE(value(off).is_off()) << off;
    }
    for (const char* on : {"true", "0", "\"\"", "\"None\"", R"({"x": 1})", "[0]"}) {
        EXPECT_FALSE(value(on).is_off()) << on;
    }
}

TEST(StrictJsonValue, HasTheVersionOfThisProgram) {
    const auto message = [](const std::string& json) {
        return testing::message_of<InputFileError>([&] {
            StrictJson::parse(json, "f").measured_version("v", 2, "a profile", "make one");
        });
    };
    StrictJson::parse(R"({"v": 2})", "f").measured_version("v", 2, "a profile", "make one");
    EXPECT_EQ(message(R"({"w": 2})"), "f: is not a profile: \"v\" is missing; make one");
    EXPECT_EQ(message(R"({"v": 3})"),
              "f: v: version 3 is not supported; this program reads version 2; measure again with "
              "this program");
    EXPECT_EQ(message(R"({"v": -1})"),
              "f: v: -1: must be an integer from 0 to 9223372036854775807");
}

}  // namespace
}  // namespace vocabpipe

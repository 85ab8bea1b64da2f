# Lists the suites of a test program, after it was built, and writes the file that adds a ctest test for
# each of them: cmake -D... -P AddSuites.cmake
#
# PROGRAM   the program
# AREA      the label, and what stands before the suite in the name of the test
# CASES     patterns of the cases that have tests of their own, separated by ":"; of a suite that has
#           others, they are those with "Stack" in their names
# TIMEOUT   seconds until a suite is taken for hung
# WRAPPER   CMAKE_CROSSCOMPILING_EMULATOR, or empty
# SETTING   a variable of the environment with its value, or empty
# FILE      what is written

execute_process(
  COMMAND ${WRAPPER} "${PROGRAM}" --gtest_list_tests "--gtest_filter=-${CASES}"
  OUTPUT_VARIABLE listed RESULT_VARIABLE result TIMEOUT 60)
if(NOT result EQUAL 0)
  file(REMOVE "${FILE}")
  message(FATAL_ERROR "${PROGRAM} cannot list its cases: ${result}\n${listed}")
endif()

# "Suite.", "Each/Suite." or "Each/0.  # TypeParam = int", then its cases, each after two spaces.
string(REPLACE ";" "\\;" listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
set(tests "")
set(suite "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)\\.( |$)")
    set(suite "${CMAKE_MATCH_1}")
  elseif(line MATCHES "^  [^ ]" AND suite)
    if(NOT DEFINED count_${suite})
      set(count_${suite} 0)
      list(APPEND suites "${suite}")
    endif()
    math(EXPR count_${suite} "${count_${suite}} + 1")
  endif()
endforeach()
# The cost makes ctest begin with the suites of many cases, so that none is left alone in the end.
foreach(suite IN LISTS suites)
  string(APPEND tests
    "add_test([==[${AREA}/${suite}]==] ${WRAPPER} [==[${PROGRAM}]==] [==[--gtest_filter=${suite}.*-*Stack*]==])\n"
    "set_tests_properties([==[${AREA}/${suite}]==] PROPERTIES"
    " TIMEOUT ${TIMEOUT} LABELS [==[${AREA}]==] COST ${count_${suite}}"
    " ENVIRONMENT [==[${SETTING}]==])\n")
endforeach()
file(WRITE "${FILE}" "${tests}")

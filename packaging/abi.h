/* Nothing is recorded while the headers change daily: scripts/check_abi --record does. */

"""What tests share: the servers, the playground, builders, oracles and readers. No test is here."""

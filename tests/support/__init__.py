"""What tests share: the servers, the live streams, builders, oracles and readers. No test is here."""
